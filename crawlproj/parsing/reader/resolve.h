/* Links resolved for Python. */
#ifndef CRAWLPROJ_RESOLVE_H
#define CRAWLPROJ_RESOLVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

/* plain_links(hrefs, origin, folder, is_canonical, clean): see html.py. */
PyObject *plain_links(PyObject *self, PyObject *args);

#endif
