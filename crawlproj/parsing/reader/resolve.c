#include "resolve.h"

#include <string.h>

#include "urls.h"

static text url; /* of the link at hand; as short as one */

static bool needs_cleaning(void) {
    const char *at = text_at(&url, 0);
    size_t length = text_length(&url);
    return memchr(at, '?', length) || memchr(at, '%', length) || memchr(at, ';', length);
}

/* Asks Python about text; -1 with Python's error. */
static int is_so(PyObject *question, const char *text, size_t length) {
    PyObject *answer = PyObject_CallFunction(question, "s#", text, (Py_ssize_t)length);
    int is_it = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return is_it;
}

/* The clean URL of a link, None for one that needs a URL parser; NULL with Python's error. What Python is asked may
 * let other threads in: url is not looked at after that. */
static PyObject *plain_link(slice href, slice origin, slice folder, PyObject *is_canonical, PyObject *clean) {
    size_t origin_length = 0;
    url.bytes.count = 0;
    enum plain_link kind = put_plain_link(&url, href, origin, folder, &origin_length);
    if (no_memory) return PyErr_NoMemory();
    if (kind == NOT_PLAIN) return Py_NewRef(Py_None);
    bool is_clean = !needs_cleaning();
    PyObject *link = PyUnicode_DecodeUTF8(text_at(&url, 0), (Py_ssize_t)text_length(&url), "replace");
    int is_plain = link && kind == IS_ABSOLUTE ? is_so(is_canonical, href.at, origin_length) : 1;
    PyObject *found = NULL;
    if (link && is_plain == 0) found = Py_NewRef(Py_None);
    else if (link && is_plain > 0) found = is_clean ? Py_NewRef(link) : PyObject_CallFunctionObjArgs(clean, link, NULL);
    Py_XDECREF(link);
    return found;
}

PyObject *plain_links(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *hrefs, *is_canonical, *clean;
    slice origin, folder;
    Py_ssize_t origin_length, folder_length;
    if (!PyArg_ParseTuple(args, "O!s#s#OO", &PyList_Type, &hrefs, &origin.at, &origin_length, &folder.at, &folder_length,
                          &is_canonical, &clean))
        return NULL;
    origin.length = (size_t)origin_length, folder.length = (size_t)folder_length;
    Py_ssize_t count = PyList_Size(hrefs);
    PyObject *found = PyList_New(count);
    for (Py_ssize_t i = 0; found && i < count; i++) {
        Py_ssize_t length;
        slice href = {PyUnicode_AsUTF8AndSize(PyList_GetItem(hrefs, i), &length), 0};
        if (href.at) href.length = (size_t)length;
        /* What is not Unicode is for the URL parser. */
        else PyErr_Clear();
        no_memory = false;
        PyObject *link = plain_link(href, origin, folder, is_canonical, clean);
        if (link) PyList_SetItem(found, i, link);
        else Py_CLEAR(found);
    }
    return found;
}
