/* One tensor beside its FP32 twin, in one pass over both: the numbers of `Comparison` (record/twin/compare.py). */

#pragma once

#include <math.h>

#include "scan.h"

enum { NUMBERS = 13 };

typedef struct {
    int64_t nonzero, flushed, too_small, subnormal, overflowed, nonfinite, nonfinite_fp32;
    double dot, squares, squares_fp32, squares_lost;
    int32_t top;
} Comparison;

/* Magnitudes below which a value is subnormal and its twin too small, as bits: these compare like the numbers. */
typedef struct {
    int32_t ours, theirs;
} Edges;

/* The bits of the smallest float that is not below `edge`. */
static int32_t edge_bits(double edge) {
    float near = (float)edge;
    if ((double)near < edge) near = nextafterf(near, INFINITY);
    return (int32_t)as_bits(near);
}

/* `count` is a multiple of LANES: a loop of a fixed length is what compilers turn into vector instructions. */
INLINE void compare_chunk(
    const uint32_t *ours, const uint32_t *theirs, int64_t count, int32_t infinity, Edges edges, Comparison *into
) {
    int32_t nonzero = 0, flushed = 0, too_small = 0, subnormal = 0, overflowed = 0, nonfinite = 0, nonfinite_fp32 = 0;
    int32_t top = 0;
    double dot[LANES] = {0.0}, squares[LANES] = {0.0}, squares_fp32[LANES] = {0.0}, lost[LANES] = {0.0};
    for (int64_t start = 0; start < count; start += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t x = ours[start + lane], y = theirs[start + lane];
            int32_t size = (int32_t)(x & ~SIGN), size_fp32 = (int32_t)(y & ~SIGN);
            int32_t finite = size < infinity, finite_fp32 = size_fp32 < 0x7f800000;
            int32_t there = (size_fp32 != 0) & finite_fp32, gone = there & (size == 0);
            int32_t tiny = gone & (size_fp32 < edges.theirs);
            nonzero += there, flushed += gone, too_small += tiny;
            subnormal += (size != 0) & (size < edges.ours);
            overflowed += finite_fp32 & !finite, nonfinite += !finite, nonfinite_fp32 += !finite_fp32;
            int32_t known = size & -finite;
            top = known > top ? known : top;
            double value = as_float(x & (uint32_t)-finite), twin = as_float(y & (uint32_t)-finite_fp32);
            dot[lane] += value * twin;
            squares[lane] += value * value;
            squares_fp32[lane] += twin * twin;
            double gone_twin = as_float(y & (uint32_t)-tiny);
            lost[lane] += gone_twin * gone_twin;
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        into->dot += dot[lane], into->squares += squares[lane];
        into->squares_fp32 += squares_fp32[lane], into->squares_lost += lost[lane];
    }
    into->nonzero += nonzero, into->flushed += flushed, into->too_small += too_small, into->subnormal += subnormal;
    into->overflowed += overflowed, into->nonfinite += nonfinite, into->nonfinite_fp32 += nonfinite_fp32;
    into->top = larger(into->top, top);
}

INLINE void compare_all(
    Kind kind, const void *ours, const uint32_t *theirs, int64_t from, int64_t to, Edges edges, Comparison *into
) {
    uint32_t room[CHUNK];
    for (int64_t start = from; start < to; start += CHUNK) {
        int64_t count = start + CHUNK < to ? CHUNK : to - start;
        const uint32_t *bits = widened(kind, ours, start, count, room);
        int64_t whole = count / LANES * LANES;
        compare_chunk(bits, theirs + start, whole, (int32_t)infinite(kind), edges, into);
        if (whole < count) { /* zeros count for nothing */
            uint32_t last[LANES] = {0}, last_twin[LANES] = {0};
            memcpy(last, bits + whole, (size_t)(count - whole) * sizeof *last);
            memcpy(last_twin, theirs + start + whole, (size_t)(count - whole) * sizeof *last);
            compare_chunk(last, last_twin, LANES, (int32_t)infinite(kind), edges, into);
        }
    }
}

FOR_EACH_CPU static void compare_fp32(const void *x, const uint32_t *y, int64_t a, int64_t b, Edges e, Comparison *c) {
    compare_all(FP32, x, y, a, b, e, c);
}
FOR_EACH_CPU static void compare_fp16(const void *x, const uint32_t *y, int64_t a, int64_t b, Edges e, Comparison *c) {
    compare_all(FP16, x, y, a, b, e, c);
}
FOR_EACH_CPU static void compare_bf16(const void *x, const uint32_t *y, int64_t a, int64_t b, Edges e, Comparison *c) {
    compare_all(BF16, x, y, a, b, e, c);
}

static void compare(
    Kind kind, const void *ours, const uint32_t *theirs, int64_t from, int64_t to, Edges edges, Comparison *into
) {
    (kind == FP32 ? compare_fp32 : kind == FP16 ? compare_fp16 : compare_bf16)(ours, theirs, from, to, edges, into);
}

static void write_comparison(const Comparison *found, int64_t numel, double *out) {
    const double numbers[NUMBERS] = {
        (double)numel, (double)found->nonzero, (double)found->flushed, (double)found->too_small,
        (double)found->subnormal, (double)found->overflowed, (double)found->nonfinite, (double)found->nonfinite_fp32,
        found->dot, found->squares, found->squares_fp32, found->squares_lost, exact(found->top),
    };
    memcpy(out, numbers, sizeof numbers);
}
