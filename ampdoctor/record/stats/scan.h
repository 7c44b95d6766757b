/* Statistics of a run of numbers in one pass over their memory: the exponent histogram, zeros, NaN, infinities, largest
   magnitude and sum of squares. What is written lies as record/stats/layout.py says; record/stats/torch_ops.py is the
   reference that the tests hold this against.

   A chunk is read several times while it is in the first-level cache: by the histogram, and by loops without branches
   that the compiler turns into vector instructions. */

#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LOWEST = -149, BIAS = 127, BINS = 277, CHUNK = 4096, LANES = 8, FEW = 256 };

/* Elements from which on a table of all magnitudes, folded afterwards, beats the pass over exponents. */
enum { PATTERNS = 1 << 15, WORTH_A_TABLE = 1 << 18 };

/* Elements after which 32-bit counters are emptied. */
#define SPAN ((int64_t)1 << 30)

typedef enum { FP32, FP16, BF16 } Kind;

typedef struct {
    int64_t zeros, nan, posinf, neginf;
    int32_t top; /* bits of the largest finite magnitude: a process may have floats below 2^-126 pass for zeros */
    double squares;
    int64_t bins[BINS]; /* by exponent, from LOWEST on */
} Statistics;

/* These names of processors are known from GCC 12 on. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif
#define INLINE static inline __attribute__((always_inline))

static const uint32_t SIGN = 0x80000000u, SMALLEST_NORMAL = 0x00800000u;

INLINE float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE uint32_t as_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

/* A magnitude by its bits, exact where floats below 2^-126 pass for zeros too. */
INLINE double exact(int32_t magnitude) {
    return magnitude < (int32_t)SMALLEST_NORMAL ? magnitude * 0x1p-149 : (double)as_float((uint32_t)magnitude);
}

/* FP16 as the same number in FP32, subnormal or not; infinities become 2^16, and NaN larger numbers. A subnormal is
   made from the integer that it is: a product of floats would be zero where the process flushes them. */
INLINE uint32_t from_fp16(uint16_t half) {
    uint32_t magnitude = half & 0x7fffu;
    uint32_t subnormal = as_bits((float)(int32_t)magnitude * 0x1p-24f), normal = (magnitude << 13) + 0x38000000u;
    uint32_t small = (uint32_t)-(int32_t)(magnitude < 0x400u);
    return (subnormal & small) | (normal & ~small) | ((half & 0x8000u) << 16);
}

/* The bits of the largest finite magnitude and one more, as `widened` has them. */
INLINE uint32_t infinite(Kind kind) { return kind == FP16 ? 0x47800000u : 0x7f800000u; }

/* A chunk as FP32; `room` is used where it lies in memory as something else. */
INLINE const uint32_t *widened(Kind kind, const void *data, int64_t from, int64_t count, uint32_t *restrict room) {
    if (kind == FP32) return (const uint32_t *)data + from;
    const uint16_t *halves = (const uint16_t *)data + from;
    if (kind == BF16)
        for (int64_t at = 0; at < count; at++) room[at] = (uint32_t)halves[at] << 16;
    else
        for (int64_t at = 0; at < count; at++) room[at] = from_fp16(halves[at]);
    return room;
}

INLINE int32_t count_zeros(const uint32_t *bits, int64_t count) {
    int32_t zeros = 0;
    for (int64_t at = 0; at < count; at++) zeros += (bits[at] & ~SIGN) == 0;
    return zeros;
}

/* Signed, because SSE and AVX compare signed integers only. */
INLINE int32_t largest_finite(const uint32_t *bits, int64_t count, int32_t infinity) {
    int32_t top = 0;
    for (int64_t at = 0; at < count; at++) {
        int32_t magnitude = (int32_t)(bits[at] & ~SIGN);
        int32_t finite = magnitude < infinity ? magnitude : 0;
        top = finite > top ? finite : top;
    }
    return top;
}

/* In lanes, so that the order of the sum is one that vector instructions can follow. */
INLINE double squares_of_finite(const uint32_t *bits, int64_t count, int32_t infinity) {
    double sums[LANES] = {0.0};
    int64_t at = 0;
    for (; at + LANES <= count; at += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            int32_t magnitude = (int32_t)(bits[at + lane] & ~SIGN);
            double value = as_float((uint32_t)(magnitude & -(magnitude < infinity)));
            sums[lane] += value * value;
        }
    for (; at < count; at++) {
        int32_t magnitude = (int32_t)(bits[at] & ~SIGN);
        double value = as_float((uint32_t)(magnitude & -(magnitude < infinity)));
        sums[0] += value * value;
    }
    for (int lane = 1; lane < LANES; lane++) sums[0] += sums[lane];
    return sums[0];
}

INLINE void count_special(const uint32_t *bits, int64_t count, int32_t infinity, int32_t special, Statistics *into) {
    int32_t nan = 0, negative = 0;
    for (int64_t at = 0; at < count; at++) {
        nan += (int32_t)(bits[at] & ~SIGN) > infinity;
        negative += bits[at] == ((uint32_t)infinity | SIGN);
    }
    into->nan += nan;
    into->neginf += negative;
    into->posinf += special - nan - negative;
}

static void count_subnormals(const uint32_t *bits, int64_t count, Statistics *into) {
    for (int64_t at = 0; at < count; at++) {
        uint32_t magnitude = bits[at] & ~SIGN;
        if (magnitude && magnitude < SMALLEST_NORMAL) into->bins[31 - __builtin_clz(magnitude)]++;
    }
}

/* Few elements: to fold tables would take longer than to look at each. */
static void scan_few(Kind kind, const void *data, int64_t from, int64_t count, Statistics *into) {
    uint32_t room[FEW];
    const uint32_t *bits = widened(kind, data, from, count, room);
    for (int64_t at = 0; at < count; at++) {
        uint32_t magnitude = bits[at] & ~SIGN;
        if (magnitude == 0) into->zeros++;
        else if (magnitude > infinite(kind)) into->nan++;
        else if (magnitude == infinite(kind)) *(bits[at] & SIGN ? &into->neginf : &into->posinf) += 1;
        else {
            float size = as_float(magnitude);
            into->bins[magnitude < SMALLEST_NORMAL ? 31 - __builtin_clz(magnitude) : (int)(magnitude >> 23) - BIAS - LOWEST]++;
            into->squares += (double)size * size;
            into->top = larger(into->top, (int32_t)magnitude);
        }
    }
}

INLINE void count_exponents(const uint32_t *bits, int64_t count, uint32_t table[LANES][256]) {
    int64_t at = 0;
    for (; at + LANES <= count; at += LANES) {
        uint32_t fields[LANES]; /* all read before the first is counted, which for the compiler might change them */
        for (int lane = 0; lane < LANES; lane++) fields[lane] = (bits[at + lane] & ~SIGN) >> 23;
        for (int lane = 0; lane < LANES; lane++) table[lane][fields[lane]]++;
    }
    for (; at < count; at++) table[0][(bits[at] & ~SIGN) >> 23]++;
}

INLINE int64_t counted(uint32_t table[LANES][256], int field) {
    int64_t sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += table[lane][field];
    return sum;
}

INLINE void scan_by_exponent(Kind kind, const void *data, int64_t from, int64_t to, Statistics *into) {
    uint32_t table[LANES][256]; /* one for each lane: neighbours of one exponent need not wait for each other */
    uint32_t room[CHUNK];
    const int32_t infinity = (int32_t)infinite(kind);
    int64_t small = 0, special = 0; /* so far: those of exponent field 0, and infinities and NaN */
    memset(table, 0, sizeof table);
    for (int64_t start = from; start < to; start += CHUNK) {
        int64_t count = start + CHUNK < to ? CHUNK : to - start;
        const uint32_t *bits = widened(kind, data, start, count, room);
        count_exponents(bits, count, table);
        into->squares += squares_of_finite(bits, count, infinity);
        into->top = larger(into->top, largest_finite(bits, count, infinity));
        int64_t small_now = counted(table, 0), special_now = counted(table, infinity >> 23);
        if (special_now > special) count_special(bits, count, infinity, (int32_t)(special_now - special), into);
        if (small_now > small) {
            int32_t zeros = count_zeros(bits, count);
            into->zeros += zeros;
            if (small_now - small > zeros) count_subnormals(bits, count, into);
        }
        small = small_now, special = special_now;
    }
    for (int field = 1; field < infinity >> 23; field++)
        for (int lane = 0; lane < LANES; lane++) into->bins[field - BIAS - LOWEST] += table[lane][field];
}

FOR_EACH_CPU static void scan_fp32(const void *data, int64_t from, int64_t to, Statistics *into) {
    scan_by_exponent(FP32, data, from, to, into);
}
FOR_EACH_CPU static void scan_fp16(const void *data, int64_t from, int64_t to, Statistics *into) {
    scan_by_exponent(FP16, data, from, to, into);
}
FOR_EACH_CPU static void scan_bf16(const void *data, int64_t from, int64_t to, Statistics *into) {
    scan_by_exponent(BF16, data, from, to, into);
}

static void fold_pattern(Kind kind, uint16_t pattern, int64_t count, Statistics *into) {
    uint32_t magnitude = kind == BF16 ? (uint32_t)pattern << 16 : from_fp16(pattern);
    if (magnitude == 0) into->zeros += count;
    else if (magnitude > infinite(kind)) into->nan += count;
    else if (magnitude == infinite(kind)) into->posinf += count;
    else {
        double value = as_float(magnitude);
        int subnormal = magnitude < SMALLEST_NORMAL;
        into->bins[subnormal ? 31 - __builtin_clz(magnitude) : (int)(magnitude >> 23) - BIAS - LOWEST] += count;
        into->squares += (double)count * value * value;
        into->top = larger(into->top, (int32_t)magnitude);
    }
}

/* Signs are left out, so that the tables are half as large; only of infinities does one matter. */
static int scan_by_pattern(Kind kind, const uint16_t *data, int64_t from, int64_t to, Statistics *into) {
    uint32_t *even = calloc(2 * PATTERNS, sizeof *even), *odd = even + PATTERNS;
    if (even == NULL) return 0;
    int64_t at = from, infinities = into->posinf, negative = 0;
    for (; at + 4 <= to; at += 4) {
        uint64_t four;
        memcpy(&four, data + at, sizeof four);
        four &= 0x7fff7fff7fff7fffu;
        even[four & 0xffff]++;
        odd[four >> 16 & 0xffff]++;
        even[four >> 32 & 0xffff]++;
        odd[four >> 48]++;
    }
    for (; at < to; at++) even[data[at] & 0x7fff]++;
    for (uint32_t pattern = 0; pattern < PATTERNS; pattern++) {
        int64_t count = (int64_t)even[pattern] + odd[pattern];
        if (count) fold_pattern(kind, (uint16_t)pattern, count, into);
    }
    free(even);
    if (into->posinf > infinities) {
        const uint16_t minus_infinity = kind == BF16 ? 0xff80 : 0xfc00;
        for (at = from; at < to; at++) negative += data[at] == minus_infinity;
        into->posinf -= negative, into->neginf += negative;
    }
    return 1;
}

static void scan(Kind kind, const void *data, int64_t from, int64_t to, Statistics *into) {
    for (int64_t start = from; start < to; start += SPAN) {
        int64_t end = start + SPAN < to ? start + SPAN : to;
        if (end - start <= FEW) {
            scan_few(kind, data, start, end - start, into);
            continue;
        }
        if (kind != FP32 && end - start >= WORTH_A_TABLE && scan_by_pattern(kind, data, start, end, into)) continue;
        (kind == FP32 ? scan_fp32 : kind == FP16 ? scan_fp16 : scan_bf16)(data, start, end, into);
    }
}
