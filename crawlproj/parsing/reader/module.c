/* The module of Python: crawlproj.parsing._reader. All that is shared here is guarded by Python's lock. */
#include "resolve.h" /* with Python.h, which comes first */

#include <string.h>

#include "choose.h"
#include "judge.h"
#include "simhash.h"
#include "survey.h"
#include "utf8.h"

/* What reading took is kept for the next page, unless the page was a large one. */
static page current;
static features current_features;
static buffer verdicts;
static text output;
#define LARGE_BYTES (4u << 20)

static void give_back(void) {
    free_page(&current);
    free_buffer(&current_features.of_lines);
    free_buffer(&verdicts);
    free_buffer(&output.bytes);
}

static size_t bytes_kept(void) {
    return page_bytes(&current) + current_features.of_lines.room_bytes + verdicts.room_bytes + output.bytes.room_bytes;
}

/* -- values for Python --------------------------------------------------------------------------------------- */

static PyObject *string_of(const char *at, size_t length) {
    return PyUnicode_DecodeUTF8(length ? at : "", (Py_ssize_t)length, "replace");
}

static PyObject *output_string(void) { return string_of(output.bytes.items, output.bytes.count); }

static void empty_output(void) {
    output.bytes.count = 0;
    output.has_space = false;
}

static PyObject *value_string(slice value) {
    empty_output();
    put_value(&output, value);
    return output_string();
}

static PyObject *text_string(slice markup) {
    empty_output();
    put_markup(&output, markup, 0, false);
    return output_string();
}

static PyObject *plain_string(slice contents) { return string_of(contents.at, contents.length); }

/* A list of what make returns for each item; NULL with Python's error. */
static PyObject *list_of(const buffer *items, size_t size, PyObject *(*make)(const void *item)) {
    PyObject *list = PyList_New((Py_ssize_t)items->count);
    for (size_t i = 0; list && i < items->count; i++) {
        PyObject *made = make((const char *)items->items + i * size);
        if (made == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, (Py_ssize_t)i, made);
    }
    return list;
}

/* Its name in small letters, without space around it. */
static PyObject *make_meta(const void *item) {
    const meta *meta = item;
    slice name = meta->name;
    while (name.length && is_space(*name.at)) name.at++, name.length--;
    while (name.length && is_space(name.at[name.length - 1])) name.length--;
    empty_output();
    if (meta->is_http_equiv) put_bytes(&output, "http-equiv:", 11);
    put_value(&output, name);
    for (size_t i = 0; i < text_length(&output); i++) *text_at(&output, i) = lower(*text_at(&output, i));
    PyObject *key = output_string();
    return Py_BuildValue("(NN)", key, value_string(meta->content));
}

static PyObject *make_json_ld(const void *item) { return plain_string(*(const slice *)item); }

static PyObject *marked_text(const mark *mark) { return string_of(text_at(&current.text, mark->start), mark->length); }

static PyObject *make_byline(const void *item) { return marked_text(item); }

static PyObject *make_time(const void *item) {
    const mark *time = item;
    PyObject *when = time->value.length ? value_string(time->value) : marked_text(time);
    empty_output();
    put_value(&output, time->names[0]);
    put_bytes(&output, " ", 1);
    put_value(&output, time->names[1]);
    return Py_BuildValue("(NN)", when, output_string());
}

static PyObject *make_heading(const void *item) {
    const mark *heading = item;
    return Py_BuildValue("(iN)", heading->level, marked_text(heading));
}

/* -- reading --------------------------------------------------------------------------------------------------- */

/* What of a page is wanted; html.py has the same, by their names. */
enum wanted {
    LINKS_A = 1 << 0,
    LINKS_AREA = 1 << 1,
    LINKS_IFRAME = 1 << 2,
    LINKS_FRAME = 1 << 3,
    LINKS_NEXT = 1 << 4, /* <link rel=next> */
    OBEY_NOFOLLOW = 1 << 5,
    MAIN_TEXT = 1 << 6,
    ALL_TEXT = 1 << 7,
    HEADINGS = 1 << 8,
};

static bool is_wanted(const page_link *link, int wanted) {
    if (wanted & OBEY_NOFOLLOW && link->is_nofollow) return false;
    switch (link->tag) {
    case TAG_a: return wanted & LINKS_A;
    case TAG_area: return wanted & LINKS_AREA;
    case TAG_iframe: return wanted & LINKS_IFRAME;
    case TAG_frame: return wanted & LINKS_FRAME;
    default: return wanted & LINKS_NEXT && link->is_next;
    }
}

/* Different links, in their order, without the parts behind a "#". */
static PyObject *links_of(int wanted) {
    PyObject *list = PyList_New(0), *seen = PySet_New(NULL);
    const page_link *links = current.links.items;
    for (size_t i = 0; list && seen && i < current.links.count; i++) {
        if (!is_wanted(&links[i], wanted)) continue;
        empty_output();
        put_value(&output, links[i].href);
        if (no_memory) break; /* making the text, which comes next, fails and reports it */
        const char *start = text_at(&output, 0), *end = memchr(start, '#', text_length(&output));
        size_t length = end ? (size_t)(end - start) : text_length(&output);
        if (length == 0) continue;
        PyObject *href = string_of(start, length);
        int is_known = href ? PySet_Contains(seen, href) : -1;
        if (is_known < 0 || (!is_known && (PySet_Add(seen, href) < 0 || PyList_Append(list, href) < 0))) Py_CLEAR(list);
        Py_XDECREF(href);
    }
    if (seen == NULL) Py_CLEAR(list);
    Py_XDECREF(seen);
    return list;
}

static PyObject *main_text(void) {
    static const char *const sources[] = {"main", "relaxed", "all", "noscript", NULL};
    empty_output();
    find_features(&current, &current_features);
    if (!no_memory) judge_lines(&current, &current_features, &verdicts);
    if (no_memory) return PyErr_NoMemory();
    enum text_source source = put_main_text(&current, verdicts.items, &output);
    return no_memory ? PyErr_NoMemory() : Py_BuildValue("(Nz)", output_string(), sources[source]);
}

static PyObject *all_text(void) {
    empty_output();
    put_all_text(&current, &output);
    return no_memory ? PyErr_NoMemory() : output_string();
}

/* Returns parts, or NULL if one of them could not be made. */
static PyObject *tuple_of(PyObject **parts, Py_ssize_t count) {
    PyObject *tuple = PyTuple_New(count);
    bool is_whole = tuple != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        is_whole = is_whole && parts[i];
        if (tuple && parts[i]) PyTuple_SetItem(tuple, i, parts[i]);
        else Py_XDECREF(parts[i]);
    }
    if (!is_whole) Py_CLEAR(tuple);
    return tuple;
}

/* Places in a page are numbers of 32 bits, and text can be a little longer than its markup. */
#define MOST_BYTES (1u << 30)

static bool read_current(const char *html, Py_ssize_t length) {
    if (length > (Py_ssize_t)MOST_BYTES) {
        PyErr_Format(PyExc_ValueError, "A page of %zd bytes cannot be read: give at most %u.", length, MOST_BYTES);
        return false;
    }
    no_memory = false;
    read_page(&current, html, (size_t)length);
    if (!no_memory) return true;
    give_back();
    PyErr_NoMemory();
    return false;
}

static PyObject *make_page(int wanted) {
    PyObject *parts[] = {
        text_string(current.title),
        list_of(&current.metas, sizeof(meta), make_meta),
        value_string(current.base),
        value_string(current.canonical),
        value_string(current.language),
        list_of(&current.json_ld, sizeof(slice), make_json_ld),
        list_of(&current.times, sizeof(mark), make_time),
        list_of(&current.bylines, sizeof(mark), make_byline),
        wanted & HEADINGS ? list_of(&current.headings, sizeof(mark), make_heading) : PyList_New(0),
        links_of(wanted),
        wanted & MAIN_TEXT ? main_text() : Py_NewRef(Py_None),
        wanted & ALL_TEXT ? all_text() : Py_NewRef(Py_None),
    };
    return tuple_of(parts, sizeof parts / sizeof *parts);
}

static PyObject *read_html(PyObject *self, PyObject *args) {
    (void)self;
    const char *html;
    Py_ssize_t length;
    int wanted;
    if (!PyArg_ParseTuple(args, "y#i", &html, &length, &wanted) || !read_current(html, length)) return NULL;
    /* Python may collect garbage while its values are made: finalizers run then, and other threads, which could read
     * a page into this one. */
    bool collects = PyGC_Disable();
    PyObject *found = make_page(wanted);
    if (collects) PyGC_Enable();
    if (bytes_kept() > LARGE_BYTES || found == NULL) give_back();
    return found;
}

static PyObject *simhash_of(PyObject *self, PyObject *args) {
    (void)self;
    const char *text;
    Py_ssize_t length;
    uint64_t found = 0;
    if (!PyArg_ParseTuple(args, "y#", &text, &length)) return NULL;
    no_memory = false;
    if (find_simhash(text, (size_t)length, &found)) return PyLong_FromLongLong((int64_t)found);
    return no_memory ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

static PyObject *valid_utf8_of(PyObject *self, PyObject *args) {
    (void)self;
    const char *bytes;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "y#", &bytes, &length)) return NULL;
    return PyLong_FromSize_t(valid_utf8(bytes, (size_t)length));
}

/* -- for benchmarks/train_text.py -------------------------------------------------------------------------------- */

typedef struct {
    PyObject *list;
    float weight;
} name_list;

static void append_name(void *context, const char *word, size_t length) {
    name_list *names = context;
    PyObject *pair = Py_BuildValue("(s#f)", word, (Py_ssize_t)length, names->weight);
    if (pair) PyList_Append(names->list, pair);
    Py_XDECREF(pair);
}

/* The names around an element with what each counts for. */
static PyObject *names_around(uint32_t number) {
    name_list names = {PyList_New(0), 1.0f};
    for (;; number = element_at(&current, number)->parent) {
        visit_names(&current, number, append_name, &names);
        if (number == 0) return names.list;
        if (is_named(element_at(&current, number))) names.weight *= NAME_DECAY;
    }
}

static PyObject *make_line(const void *item) {
    const line *line = item;
    return Py_BuildValue("(NN)", string_of(text_at(&current.text, line->start), line->length), names_around(line->owner));
}

static PyObject *inspect(PyObject *self, PyObject *args) {
    (void)self;
    const char *html;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "y#", &html, &length) || !read_current(html, length)) return NULL;
    find_features(&current, &current_features);
    if (no_memory) return PyErr_NoMemory();
    return Py_BuildValue("(Ny#y#)", list_of(&current.lines, sizeof(line), make_line), (char *)current_features.of_page,
                         (Py_ssize_t)sizeof current_features.of_page, (char *)current_features.of_lines.items,
                         (Py_ssize_t)(current.lines.count * LINE_FEATURES * sizeof(float)));
}

/* -- the module -------------------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"read", read_html, METH_VARARGS, "read(html, wanted): what html.py makes a page of."},
    {"simhash", simhash_of, METH_VARARGS, "simhash(utf8): a signed number, or None for a text without words."},
    {"plain_links", plain_links, METH_VARARGS,
     "plain_links(hrefs, origin, folder, is_canonical, clean): their URLs, None for those that need a URL parser."},
    {"valid_utf8", valid_utf8_of, METH_VARARGS, "valid_utf8(bytes): how many from the start are whole, valid characters."},
    {"inspect", inspect, METH_VARARGS, "inspect(html): its lines with their names, features of the page and of each line."},
    {0},
};

/* The names of characters are Python's. */
static bool learn_characters(void) {
    PyObject *entities = PyImport_ImportModule("html.entities");
    PyObject *table = entities ? PyObject_GetAttrString(entities, "html5") : NULL;
    PyObject *name, *characters;
    Py_ssize_t place = 0;
    bool is_done = table != NULL;
    while (is_done && PyDict_Next(table, &place, &name, &characters)) {
        PyObject *key = PyUnicode_AsUTF8String(name), *value = PyUnicode_AsUTF8String(characters);
        is_done = key && value && add_character_name(PyBytes_AsString(key), PyBytes_AsString(value));
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    Py_XDECREF(table);
    Py_XDECREF(entities);
    if (!is_done && !PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "html.entities has a name that is too long");
    return is_done;
}

static bool add_constants(PyObject *module) {
    static const struct {
        const char *name;
        int value;
    } constants[] = {
        {"LINKS_A", LINKS_A},         {"LINKS_AREA", LINKS_AREA}, {"LINKS_IFRAME", LINKS_IFRAME},
        {"LINKS_FRAME", LINKS_FRAME}, {"LINKS_NEXT", LINKS_NEXT}, {"OBEY_NOFOLLOW", OBEY_NOFOLLOW},
        {"MAIN_TEXT", MAIN_TEXT},     {"ALL_TEXT", ALL_TEXT},     {"HEADINGS", HEADINGS},
        {"LINE_FEATURES", LINE_FEATURES}, {"PAGE_FEATURES", PAGE_FEATURES},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0) return false;
    return true;
}

PyMODINIT_FUNC PyInit__reader(void) {
    static struct PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, .m_name = "_reader", .m_doc = "HTML read in one pass.", .m_size = -1, .m_methods = methods};
    make_tags();
    make_names();
    make_counters();
    make_crcs();
    if (!learn_characters()) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module && !add_constants(module)) Py_CLEAR(module);
    return module;
}
