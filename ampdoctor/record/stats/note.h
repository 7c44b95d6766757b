/* What is known of tensors when they are met, put where Python keeps it: a dozen small objects for each of the thousands
   of tensors of a step, which take C a quarter of the time. */

#pragma once

#include "describe.h"

static PyObject *name_shape, *name_version;

static int know_more_names(void) {
    name_shape = PyUnicode_InternFromString("shape"), name_version = PyUnicode_InternFromString("_version");
    return name_shape && name_version;
}

/* Append `made`, which is given up. */
static int append(PyObject *list, PyObject *made) {
    int failed = made == NULL || PyList_Append(list, made) < 0;
    Py_XDECREF(made);
    return !failed;
}

/* Append the items of a tuple from `first` on. */
static int append_all(PyObject *list, PyObject *tuple, Py_ssize_t first) {
    for (Py_ssize_t n = first; n < PyTuple_Size(tuple); n++)
        if (PyList_Append(list, PyTuple_GetItem(tuple, n)) < 0) return 0;
    return 1;
}

/* How many times a tensor was changed in place; inference tensors don't count. */
static PyObject *version_of(PyObject *tensor) {
    PyObject *version = PyObject_GetAttr(tensor, name_version);
    if (version != NULL || !PyErr_ExceptionMatches(PyExc_RuntimeError)) return version;
    PyErr_Clear();
    return PyLong_FromLong(0);
}

/* seen[id(tensor)] = (weak reference, version, row), each of which is given up. */
static int remember(PyObject *seen, PyObject *tensor, long long row) {
    PyObject *key = PyLong_FromVoidPtr(tensor), *entry = PyTuple_New(3);
    PyObject *reference = PyWeakref_NewRef(tensor, NULL), *version = version_of(tensor), *place = PyLong_FromLongLong(row);
    int whole = key && entry && reference && version && place;
    if (whole) {
        PyTuple_SetItem(entry, 0, reference), PyTuple_SetItem(entry, 1, version), PyTuple_SetItem(entry, 2, place);
        whole = PyDict_SetItem(seen, key, entry) == 0;
    } else Py_XDECREF(reference), Py_XDECREF(version), Py_XDECREF(place);
    Py_XDECREF(key), Py_XDECREF(entry);
    return whole;
}

/* note(places, tensors, sites, contexts, dtypes, micro_batch, order, known, seen, first): appends to the list `known`, for
   each of the tensors described at the address `places`, what record/tensor_rows.py calls KNOWN, and enters it in the
   dictionary `seen` with its row, of which `first` is the first. `sites` and `contexts` are lists of tuples of three,
   `dtypes` the names of dtypes, and `order` an iterator of places in the order of the step. Where memory runs out in
   between, `known` is as it was. */
static PyObject *py_note(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    int lists = given == 10 && PyList_Check(args[1]) && PyList_Check(args[2]) && PyList_Check(args[3]);
    if (!lists || !PyTuple_Check(args[4]) || !PyList_Check(args[7]) || !PyDict_Check(args[8])) {
        PyErr_SetString(PyExc_TypeError, "note(places, tensors, sites, contexts, dtypes, micro_batch, order, known, seen, first)");
        return NULL;
    }
    const int64_t *places = PyLong_AsVoidPtr(args[0]);
    long long first = PyLong_AsLongLong(args[9]);
    PyObject *known = args[7];
    Py_ssize_t before = PyList_Size(known), count = PyList_Size(args[1]);
    if (PyErr_Occurred()) return NULL;
    if (PyList_Size(args[2]) != count || PyList_Size(args[3]) != count || (count && elements_of(places, count) < 0)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a site and a context for each tensor");
        return NULL;
    }
    for (Py_ssize_t n = 0; n < count; n++) {
        const int64_t *place = places + 3 * n;
        PyObject *tensor = PyList_GetItem(args[1], n), *site = PyList_GetItem(args[2], n), *context = PyList_GetItem(args[3], n);
        int noted = PyTuple_Check(site) && PyTuple_Check(context) && PyTuple_Size(context) == 3
            && PyList_Append(known, args[5]) == 0 && append(known, PyIter_Next(args[6])) && append_all(known, site, 0)
            && PyList_Append(known, PyTuple_GetItem(context, 0)) == 0
            && PyList_Append(known, PyTuple_GetItem(args[4], (Py_ssize_t)place[0])) == 0
            && append(known, PyObject_GetAttr(tensor, name_shape)) && append(known, PyLong_FromLongLong(place[2]))
            && append_all(known, context, 1) && PyList_Append(known, Py_None) == 0
            && remember(args[8], tensor, first + n);
        if (!noted) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a site and a context are tuples of three");
            PyObject *kind, *error, *trace;
            PyErr_Fetch(&kind, &error, &trace);
            PyList_SetSlice(known, before, PyList_Size(known), NULL);
            PyErr_Restore(kind, error, trace);
            return NULL;
        }
    }
    Py_RETURN_NONE;
}
