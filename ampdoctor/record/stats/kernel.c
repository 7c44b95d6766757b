/* The module of Python that looks at a tensor's memory (scan.h), in as many threads as are worth it. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <pthread.h>

#include "describe.h"
#include "finite.h"
#include "note.h"
#include "pairs.h"
#include "scan.h"

enum { MAX_THREADS = 64, COLUMNS = 8 };

/* Elements that are worth a thread of their own: 2 ms, of which starting it may take half a one. */
enum { WORTH_A_THREAD = 1 << 21 };

/* A part of one tensor, or of one and its twin, and what was found in it. */
typedef struct {
    Kind kind;
    const void *data;
    const uint32_t *twin; /* or NULL */
    int64_t from, to;
    Edges edges;
    Statistics found;
    Comparison compared;
    pthread_t thread;
    int started;
} Share;

static void *look(void *argument) {
    Share *share = argument;
    if (share->twin) compare(share->kind, share->data, share->twin, share->from, share->to, share->edges, &share->compared);
    else scan(share->kind, share->data, share->from, share->to, &share->found);
    return NULL;
}

static void add(const Share *part, Share *into) {
    const Statistics *found = &part->found;
    Statistics *all = &into->found;
    all->zeros += found->zeros, all->nan += found->nan, all->posinf += found->posinf, all->neginf += found->neginf;
    all->squares += found->squares;
    all->top = larger(all->top, found->top);
    for (int bin = 0; bin < BINS; bin++) all->bins[bin] += found->bins[bin];
    const Comparison *pair = &part->compared;
    Comparison *pairs = &into->compared;
    pairs->nonzero += pair->nonzero, pairs->flushed += pair->flushed, pairs->too_small += pair->too_small;
    pairs->subnormal += pair->subnormal, pairs->overflowed += pair->overflowed, pairs->nonfinite += pair->nonfinite;
    pairs->nonfinite_fp32 += pair->nonfinite_fp32, pairs->dot += pair->dot, pairs->squares += pair->squares;
    pairs->squares_fp32 += pair->squares_fp32, pairs->squares_lost += pair->squares_lost;
    pairs->top = larger(pairs->top, pair->top);
}

/* Look at `whole`, whose findings are zero, in as many threads as are worth it. */
static void share_out(Share *whole, int threads) {
    int64_t numel = whole->to, shares = numel / WORTH_A_THREAD < threads ? numel / WORTH_A_THREAD : threads;
    Share *work = shares > 1 ? calloc((size_t)shares, sizeof *work) : NULL;
    if (work == NULL) {
        look(whole);
        return;
    }
    for (int64_t n = 0; n < shares; n++) {
        Share *share = work + n;
        *share = *whole;
        share->from = numel / shares * n, share->to = n + 1 < shares ? numel / shares * (n + 1) : numel;
        share->started = n > 0 && pthread_create(&share->thread, NULL, look, share) == 0;
    }
    for (int64_t n = 0; n < shares; n++) {
        if (work[n].started) pthread_join(work[n].thread, NULL);
        else look(work + n);
        add(work + n, whole);
    }
    free(work);
}

/* Elements from which on other threads of Python go on meanwhile: of fewer they would hardly get anything done, and who
   lets them may wait for long. */
enum { WORTH_LETTING_GO = 1 << 15 };

static int at_most(long threads) { return threads > MAX_THREADS ? MAX_THREADS : (int)threads; }

/* Write the numbers that head a row, and the bins between the first and last that hold any; returns how many. */
static int64_t put(const Statistics *found, double *row, int64_t *bins) {
    int first = 0, end = BINS;
    while (end > 0 && found->bins[end - 1] == 0) end--;
    while (first < end && found->bins[first] == 0) first++;
    memcpy(bins, found->bins + first, (size_t)(end - first) * sizeof *bins);
    const double head[COLUMNS] = {
        (double)found->zeros, (double)found->nan, (double)found->posinf, (double)found->neginf,
        exact(found->top), found->squares, end > first ? LOWEST + first : 0, end - first,
    };
    memcpy(row, head, sizeof head);
    return end - first;
}

/* Where the findings of several tensors go: a row of COLUMNS for each, its bins from `used` on, and where these start. */
typedef struct {
    double *rows;
    int64_t *bins, *starts, used;
} Findings;

/* Look at `count` tensors. */
static void look_at_all(const int64_t *tensors, long long count, int threads, Findings *into) {
    for (long long n = 0; n < count; n++) {
        const int64_t *tensor = tensors + 3 * n;
        Share whole;
        memset(&whole, 0, sizeof whole);
        whole.kind = (Kind)tensor[0], whole.data = (const void *)(intptr_t)tensor[1], whole.to = tensor[2];
        share_out(&whole, threads);
        into->starts[n] = into->used;
        into->used += put(&whole.found, into->rows + COLUMNS * n, into->bins + into->used);
    }
}

/* measure(tensors, count, threads, rows, starts, bins, used): `tensors` is the address of (kind, address, elements) as
   int64; at the others is room for COLUMNS doubles, for an int64 and, from the `used`-th on, for BINS int64 for each.
   Returns the bins used by then. */
static PyObject *py_measure(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 7) {
        PyErr_SetString(PyExc_TypeError, "measure(tensors, count, threads, rows, starts, bins, used)");
        return NULL;
    }
    const int64_t *tensors = PyLong_AsVoidPtr(args[0]);
    long long count = PyLong_AsLongLong(args[1]);
    long threads = PyLong_AsLong(args[2]);
    Findings into = {PyLong_AsVoidPtr(args[3]), PyLong_AsVoidPtr(args[5]), PyLong_AsVoidPtr(args[4]), PyLong_AsLongLong(args[6])};
    if (PyErr_Occurred()) return NULL;
    if (tensors == NULL || into.rows == NULL || into.bins == NULL || into.starts == NULL) {
        PyErr_SetString(PyExc_ValueError, "no such place");
        return NULL;
    }
    int64_t elements = elements_of(tensors, count);
    if (elements < 0) return NULL;
    if (elements < WORTH_LETTING_GO) {
        look_at_all(tensors, count, 1, &into);
        return PyLong_FromLongLong(into.used);
    }
    Py_BEGIN_ALLOW_THREADS
    look_at_all(tensors, count, at_most(threads), &into);
    Py_END_ALLOW_THREADS
    return PyLong_FromLongLong(into.used);
}

/* compare(kind, data, twin, elements, threads, edge, edge of the twin, out): `out` is the address of NUMBERS doubles. */
static PyObject *py_compare(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 8) {
        PyErr_SetString(PyExc_TypeError, "compare(kind, data, twin, elements, threads, edge, edge of the twin, out)");
        return NULL;
    }
    Share whole;
    memset(&whole, 0, sizeof whole);
    long kind = PyLong_AsLong(args[0]), threads = PyLong_AsLong(args[4]);
    whole.data = PyLong_AsVoidPtr(args[1]), whole.twin = PyLong_AsVoidPtr(args[2]), whole.to = PyLong_AsLongLong(args[3]);
    whole.edges.ours = edge_bits(PyFloat_AsDouble(args[5])), whole.edges.theirs = edge_bits(PyFloat_AsDouble(args[6]));
    double *out = PyLong_AsVoidPtr(args[7]);
    if (PyErr_Occurred()) return NULL;
    if (kind < FP32 || kind > BF16 || whole.to < 0 || out == NULL || (whole.to && (!whole.data || !whole.twin))) {
        PyErr_SetString(PyExc_ValueError, "no such kind, size or place");
        return NULL;
    }
    whole.kind = (Kind)kind;
    if (whole.to) {
        Py_BEGIN_ALLOW_THREADS
        share_out(&whole, at_most(threads));
        Py_END_ALLOW_THREADS
    }
    write_comparison(&whole.compared, whole.to, out);
    Py_RETURN_NONE;
}

/* finite(tensors, count): whether all elements of all `tensors`, as for measure, are finite. */
static PyObject *py_finite(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "finite(tensors, count)");
        return NULL;
    }
    const int64_t *tensors = PyLong_AsVoidPtr(args[0]);
    long long count = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred()) return NULL;
    if (tensors == NULL) {
        PyErr_SetString(PyExc_ValueError, "no such place");
        return NULL;
    }
    if (elements_of(tensors, count) < 0) return NULL;
    int finite = 1;
    Py_BEGIN_ALLOW_THREADS
    for (long long n = 0; n < count && finite; n++)
        finite = all_finite((Kind)tensors[3 * n], (const void *)(intptr_t)tensors[3 * n + 1], tensors[3 * n + 2]);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(finite);
}

static PyMethodDef methods[] = {
    {"copy", (PyCFunction)(void (*)(void))py_copy, METH_FASTCALL, "Copy tensors of FP32 to memory, one after another."},
    {"describe", (PyCFunction)(void (*)(void))py_describe, METH_FASTCALL, "Write where tensors lie."},
    {"note", (PyCFunction)(void (*)(void))py_note, METH_FASTCALL, "Note what is known of tensors."},
    {"subtract", (PyCFunction)(void (*)(void))py_subtract, METH_FASTCALL, "Subtract tensors of FP32 from such a copy."},
    {"compare", (PyCFunction)(void (*)(void))py_compare, METH_FASTCALL, "Write how a tensor compares with its twin."},
    {"finite", (PyCFunction)(void (*)(void))py_finite, METH_FASTCALL, "Whether all elements of tensors are finite."},
    {"measure", (PyCFunction)(void (*)(void))py_measure, METH_FASTCALL, "Write the statistics of tensors."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernel", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return know_names() && know_more_names() ? PyModule_Create(&definition) : NULL; }
