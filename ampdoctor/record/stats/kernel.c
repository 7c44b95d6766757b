/* The module of Python that looks at a tensor's memory (scan.h), in as many threads as are worth it. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <pthread.h>

#include "scan.h"

enum { MAX_THREADS = 64, COLUMNS = 8 };

/* Elements that are worth a thread of their own: some 0.2 ms. */
enum { WORTH_A_THREAD = 1 << 18 };

typedef struct {
    Kind kind;
    const void *data;
    int64_t from, to;
    Statistics found;
    pthread_t thread;
    int started;
} Share;

static void *scan_share(void *argument) {
    Share *share = argument;
    scan(share->kind, share->data, share->from, share->to, &share->found);
    return NULL;
}

static void add(const Statistics *part, Statistics *into) {
    into->zeros += part->zeros;
    into->nan += part->nan;
    into->posinf += part->posinf;
    into->neginf += part->neginf;
    into->squares += part->squares;
    into->absmax = part->absmax > into->absmax ? part->absmax : into->absmax;
    for (int bin = 0; bin < BINS; bin++) into->bins[bin] += part->bins[bin];
}

static Statistics measure(Kind kind, const void *data, int64_t numel, int threads) {
    Statistics all;
    memset(&all, 0, sizeof all);
    int64_t shares = numel / WORTH_A_THREAD < threads ? numel / WORTH_A_THREAD : threads;
    Share *work = shares > 1 ? calloc((size_t)shares, sizeof *work) : NULL;
    if (work == NULL) {
        scan(kind, data, 0, numel, &all);
    } else {
        for (int64_t n = 0; n < shares; n++) {
            Share *share = work + n;
            share->kind = kind, share->data = data;
            share->from = numel / shares * n, share->to = n + 1 < shares ? numel / shares * (n + 1) : numel;
            share->started = n > 0 && pthread_create(&share->thread, NULL, scan_share, share) == 0;
        }
        for (int64_t n = 0; n < shares; n++) {
            if (work[n].started) pthread_join(work[n].thread, NULL);
            else scan_share(work + n);
            add(&work[n].found, &all);
        }
        free(work);
    }
    return all;
}

/* Write the numbers that head a row, and the bins between the first and last that hold any; returns how many. */
static int64_t put(const Statistics *found, double *row, int64_t *bins) {
    int first = 0, end = BINS;
    while (end > 0 && found->bins[end - 1] == 0) end--;
    while (first < end && found->bins[first] == 0) first++;
    memcpy(bins, found->bins + first, (size_t)(end - first) * sizeof *bins);
    const double head[COLUMNS] = {
        (double)found->zeros, (double)found->nan, (double)found->posinf, (double)found->neginf,
        found->absmax, found->squares, end > first ? LOWEST + first : 0, end - first,
    };
    memcpy(row, head, sizeof head);
    return end - first;
}

/* measure(tensors, count, threads, rows, bins): `tensors` is the address of (kind, address, elements) as int64, `rows`
   that of COLUMNS doubles for each and `bins` that of room for BINS int64 for each. Returns the bins written. */
static PyObject *py_measure(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 5) {
        PyErr_SetString(PyExc_TypeError, "measure(tensors, count, threads, rows, bins)");
        return NULL;
    }
    const int64_t *tensors = PyLong_AsVoidPtr(args[0]);
    long long count = PyLong_AsLongLong(args[1]);
    long threads = PyLong_AsLong(args[2]);
    double *rows = PyLong_AsVoidPtr(args[3]);
    int64_t *bins = PyLong_AsVoidPtr(args[4]), written = 0;
    if (PyErr_Occurred()) return NULL;
    if (tensors == NULL || rows == NULL || bins == NULL) {
        PyErr_SetString(PyExc_ValueError, "no such place");
        return NULL;
    }
    for (long long n = 0; n < count; n++) {
        const int64_t *tensor = tensors + 3 * n;
        if (tensor[0] < FP32 || tensor[0] > BF16 || tensor[2] < 0) {
            PyErr_SetString(PyExc_ValueError, "no such kind or size");
            return NULL;
        }
        Statistics found;
        Kind kind = (Kind)tensor[0];
        const void *data = (const void *)(intptr_t)tensor[1];
        if (tensor[2] < CHUNK) { /* others would hardly get anything done meanwhile */
            found = measure(kind, data, tensor[2], 1);
        } else {
            Py_BEGIN_ALLOW_THREADS
            found = measure(kind, data, tensor[2], threads > MAX_THREADS ? MAX_THREADS : (int)threads);
            Py_END_ALLOW_THREADS
        }
        written += put(&found, rows + COLUMNS * n, bins + written);
    }
    return PyLong_FromLongLong(written);
}

static PyMethodDef methods[] = {
    {"measure", (PyCFunction)(void (*)(void))py_measure, METH_FASTCALL, "Write the statistics of tensors."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernel", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModule_Create(&definition); }
