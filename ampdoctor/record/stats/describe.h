/* Where tensors lie in memory, asked of their objects in one go: there are thousands in a step, and each question that
   Python asks takes longer than this takes for all. And what needs no more than that: copies, and differences to them.

   A tensor is described by (kind, address, elements) as three int64; its kind is UNREADABLE where the kernel can't read it
   as it is. */

#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include "scan.h"

enum { KINDS = 3, UNREADABLE = -1 };

static PyObject *name_dtype, *name_layout, *name_is_cpu, *name_is_contiguous, *name_is_neg, *name_data_ptr, *name_numel;

static int know_names(void) {
    name_dtype = PyUnicode_InternFromString("dtype"), name_layout = PyUnicode_InternFromString("layout");
    name_is_cpu = PyUnicode_InternFromString("is_cpu"), name_is_neg = PyUnicode_InternFromString("is_neg");
    name_is_contiguous = PyUnicode_InternFromString("is_contiguous");
    name_data_ptr = PyUnicode_InternFromString("data_ptr"), name_numel = PyUnicode_InternFromString("numel");
    return name_dtype && name_layout && name_is_cpu && name_is_neg && name_is_contiguous && name_data_ptr && name_numel;
}

/* 1 where `answer`, which is given up, is `wanted`, 0 where it is not, -1 with an exception. */
static int is(PyObject *answer, PyObject *wanted) {
    if (answer == NULL) return -1;
    int same = answer == wanted;
    Py_DECREF(answer);
    return same;
}

/* The place of `wanted` in a tuple; UNREADABLE where it is not there. */
static int place_of(PyObject *wanted, PyObject *tuple) {
    for (Py_ssize_t n = 0; n < PyTuple_Size(tuple); n++)
        if (PyTuple_GetItem(tuple, n) == wanted) return (int)n;
    return UNREADABLE;
}

static int ask_number(PyObject *tensor, PyObject *method, int64_t *into) {
    PyObject *answer = PyObject_CallMethodObjArgs(tensor, method, NULL);
    if (answer == NULL) return -1;
    *into = (int64_t)PyLong_AsUnsignedLongLongMask(answer);
    Py_DECREF(answer);
    return PyErr_Occurred() ? -1 : 1;
}

/* Describe one tensor: 1 where the kernel can read it, 0 where it can't, -1 with an exception. What rules out most is
   asked first; a tensor that is not dense knows no answer to some of it. */
static int describe_one(PyObject *tensor, PyObject *classes, PyObject *dtypes, PyObject *strided, int64_t *into) {
    into[0] = UNREADABLE, into[1] = into[2] = 0;
    if (place_of((PyObject *)Py_TYPE(tensor), classes) == UNREADABLE) return 0;
    PyObject *dtype = PyObject_GetAttr(tensor, name_dtype);
    if (dtype == NULL) return -1;
    int kind = place_of(dtype, dtypes), answer;
    Py_DECREF(dtype);
    if (kind == UNREADABLE) return 0;
    if ((answer = is(PyObject_GetAttr(tensor, name_is_cpu), Py_True)) != 1) return answer;
    if ((answer = is(PyObject_GetAttr(tensor, name_layout), strided)) != 1) return answer;
    if ((answer = is(PyObject_CallMethodObjArgs(tensor, name_is_contiguous, NULL), Py_True)) != 1) return answer;
    if ((answer = is(PyObject_CallMethodObjArgs(tensor, name_is_neg, NULL), Py_False)) != 1) return answer;
    int64_t data, numel;
    if (ask_number(tensor, name_data_ptr, &data) < 0 || ask_number(tensor, name_numel, &numel) < 0) return -1;
    if (numel && !data) return 0; /* zeros that torch keeps no memory for */
    into[0] = kind, into[1] = data, into[2] = numel;
    return 1;
}

/* describe(tensors, classes, dtypes, strided, places): describes each of a list at the address `places`; readable are
   those of one of `classes` and `dtypes` (FP32, FP16, BF16 in this order). Returns how many are. */
static PyObject *py_describe(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 5 || !PyList_Check(args[0]) || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "describe(tensors: list, classes: tuple, dtypes: tuple, strided, places)");
        return NULL;
    }
    int64_t *places = PyLong_AsVoidPtr(args[4]);
    if (PyErr_Occurred()) return NULL;
    if (places == NULL || PyTuple_Size(args[2]) != KINDS) {
        PyErr_SetString(PyExc_ValueError, "no such place, or not three dtypes");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(args[0]), readable = 0;
    for (Py_ssize_t n = 0; n < count; n++) {
        int found = describe_one(PyList_GetItem(args[0], n), args[1], args[2], args[3], places + 3 * n);
        if (found < 0) return NULL;
        readable += found;
    }
    return PyLong_FromSsize_t(readable);
}

/* How many elements `count` tensors have; -1 with an exception where one of them can be none. */
static int64_t elements_of(const int64_t *tensors, long long count) {
    int64_t elements = 0;
    for (long long n = 0; n < count; n++) {
        const int64_t *tensor = tensors + 3 * n;
        if (tensor[0] < FP32 || tensor[0] > BF16 || tensor[2] < 0) {
            PyErr_SetString(PyExc_ValueError, "no such kind or size");
            return -1;
        }
        elements += tensor[2];
    }
    return elements;
}

/* Read (tensors, count, copy), all of FP32; returns 0 with an exception where that is wrong. */
static int read_copy(PyObject *const *args, Py_ssize_t given, const int64_t **tensors, long long *count, float **copy) {
    if (given != 3) {
        PyErr_SetString(PyExc_TypeError, "(tensors, count, copy)");
        return 0;
    }
    *tensors = PyLong_AsVoidPtr(args[0]), *count = PyLong_AsLongLong(args[1]), *copy = PyLong_AsVoidPtr(args[2]);
    if (PyErr_Occurred()) return 0;
    int wrong = *tensors == NULL || *copy == NULL;
    for (long long n = 0; n < *count && !wrong; n++) wrong = (*tensors)[3 * n] != FP32;
    if (wrong) PyErr_SetString(PyExc_ValueError, "no such place, or not FP32");
    return !wrong && elements_of(*tensors, *count) >= 0;
}

/* copy(tensors, count, copy): tensors of FP32, as for measure, to the address `copy`, one after another. */
static PyObject *py_copy(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    const int64_t *tensors;
    long long count;
    float *copy;
    if (!read_copy(args, given, &tensors, &count, &copy)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (long long n = 0; n < count; n++) {
        int64_t numel = tensors[3 * n + 2];
        if (numel) memcpy(copy, (const void *)(intptr_t)tensors[3 * n + 1], (size_t)numel * sizeof *copy);
        copy += numel;
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* subtract(tensors, count, copy): what the tensors hold now from such a copy. */
static PyObject *py_subtract(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    const int64_t *tensors;
    long long count;
    float *copy;
    if (!read_copy(args, given, &tensors, &count, &copy)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (long long n = 0; n < count; n++) {
        const float *now = (const float *)(intptr_t)tensors[3 * n + 1];
        int64_t numel = tensors[3 * n + 2];
        for (int64_t at = 0; at < numel; at++) copy[at] -= now[at];
        copy += numel;
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
