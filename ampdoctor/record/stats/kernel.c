/* The module of Python that looks at a tensor's memory (scan.h), in as many threads as are worth it. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <pthread.h>

#include "scan.h"

enum { MAX_THREADS = 64 };

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

static void measure(Kind kind, const void *data, int64_t numel, int threads, double *out) {
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
    out[0] = (double)all.zeros, out[1] = (double)all.nan, out[2] = (double)all.posinf, out[3] = (double)all.neginf;
    out[4] = all.absmax, out[5] = all.squares;
    for (int bin = 0; bin < BINS; bin++) out[HEADER + bin] = (double)all.bins[bin];
}

/* measure(kind, data, numel, threads, out): the addresses are those of the tensor and of HEADER + BINS doubles. */
static PyObject *py_measure(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "measure(kind, data, numel, threads, out)");
        return NULL;
    }
    long kind = PyLong_AsLong(args[0]), threads = PyLong_AsLong(args[3]);
    void *data = PyLong_AsVoidPtr(args[1]), *out = PyLong_AsVoidPtr(args[4]);
    long long numel = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred()) return NULL;
    if (kind < FP32 || kind > BF16 || numel < 0 || out == NULL) {
        PyErr_SetString(PyExc_ValueError, "no such kind, size or place");
        return NULL;
    }
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (numel < CHUNK) { /* others would hardly get anything done meanwhile */
        measure((Kind)kind, data, numel, 1, out);
        Py_RETURN_NONE;
    }
    Py_BEGIN_ALLOW_THREADS
    measure((Kind)kind, data, numel, (int)threads, out);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"measure", (PyCFunction)(void (*)(void))py_measure, METH_FASTCALL, "Write the statistics of a tensor."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernel", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModule_Create(&definition); }
