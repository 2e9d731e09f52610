#pragma once

// Functions that the AVX-512 files share. Each carries its target attribute, so that nothing else
// in those files' object code (inline functions of headers) needs more than the baseline.

#include "compress/kernels/codec_kernels.h"

#define RUNNEL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,popcnt")))
#define RUNNEL_AVX512_INLINE RUNNEL_AVX512 __attribute__((always_inline)) static inline

namespace runnel {

// codec_kernels_avx512_mbq.cc
void Avx512MbqEncode(const float* x, size_t n, const MbqSearch& search, std::byte* planes,
                     MbqSums* sums);
void Avx512MbqDecode(const std::byte* planes, size_t n, const MbqLevels& levels, float* out);

}  // namespace runnel
