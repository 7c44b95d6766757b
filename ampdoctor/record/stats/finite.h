/* Whether all elements of a tensor are finite: the largest bits without their sign say so. */

#ifndef FINITE_H
#define FINITE_H

#include "scan.h"

enum { STRETCH = 1 << 12 }; /* elements after which it is asked */

/* Signed, because SSE and AVX compare signed integers only. */
#define ALL_FINITE(name, type, magnitude, infinity)                                      \
    FOR_EACH_CPU static int name(const type *bits, int64_t numel) {                                   \
        for (int64_t from = 0; from < numel; from += STRETCH) {                          \
            int64_t to = numel - from < STRETCH ? numel : from + STRETCH;                \
            type top = 0;                                                                \
            for (int64_t n = from; n < to; n++) {                                        \
                type own = (type)(bits[n] & magnitude);                                     \
                top = own > top ? own : top;                                             \
            }                                                                            \
            if (top >= infinity) return 0;                                               \
        }                                                                                \
        return 1;                                                                        \
    }

ALL_FINITE(all_finite_fp32, int32_t, 0x7fffffff, 0x7f800000)
ALL_FINITE(all_finite_fp16, int16_t, 0x7fff, 0x7c00)
ALL_FINITE(all_finite_bf16, int16_t, 0x7fff, 0x7f80)

static int all_finite(Kind kind, const void *data, int64_t numel) {
    if (kind == FP32) return all_finite_fp32(data, numel);
    return kind == FP16 ? all_finite_fp16(data, numel) : all_finite_bf16(data, numel);
}

#endif
