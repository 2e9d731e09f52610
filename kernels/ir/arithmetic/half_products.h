#pragma once

// The arithmetic of programs of halves (Program::values: bf16, f16). A value is widened to FP32,
// exactly; an instruction computes on it what ref computes of FP32, and rounds its result once.
// Products have an order of their sums, so that all processors give the same bytes: the one of
// AVX512-BF16's vdpbf16ps, whose instruction is two fused multiply-adds a lane.
//
// || Terms. Of a convolution's forward and input-gradient: kernel positions in ascending order, at
// each the channels in ascending pairs, of a pair the second one first; what lies in the padding is
// 0. A sum begins with the bias, or 0. Of a weight-gradient: output pixels in ascending order (n,
// h, w), in pairs likewise; each kHalfPixels of them are a partial sum that begins with 0, and
// these are added up in FP32. A linear layer is a convolution of one position. A bias' gradient is
// a sum of doubles.
// || Each term is one fused multiply-add that takes subnormal numbers for 0 and gives none
// (FlushSubnormals). A sum of -0 becomes 0. Products read weights rounded to the type of what they
// meet.
// || f16 has no infinity here: what is beyond its largest value becomes that.

#include <cmath>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "absl/types/span.h"
#include "kernels/ir/range_tally.h"
#include "proto/base/tensor/dtype.h"

namespace runnel {

inline constexpr int64_t kHalfPixels = 128;
inline constexpr float kHalfUnderflow = 0x1p-25f;  // f16 rounds it, and what is smaller, to 0

// While it lives, FP32 arithmetic of this thread takes subnormal numbers for 0 and gives none.
class FlushSubnormals {
 public:
#if defined(__x86_64__)
  FlushSubnormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | kFlushToZero | kZeroInputs);
    Fence();
  }
  ~FlushSubnormals() {
    Fence();
    _mm_setcsr(before_);
  }
#elif defined(__aarch64__)
  FlushSubnormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" ::"r"(before_ | kFlush) : "memory");
  }
  ~FlushSubnormals() { asm volatile("msr fpcr, %0" ::"r"(before_) : "memory"); }
#endif
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  // No load or store, and so no arithmetic on what lies in memory, is moved across it.
  static void Fence() { asm volatile("" ::: "memory"); }
#if defined(__x86_64__)
  static constexpr unsigned kFlushToZero = 0x8000, kZeroInputs = 0x40;
  unsigned before_;
#elif defined(__aarch64__)
  static constexpr uint64_t kFlush = 1 << 24;
  uint64_t before_;
#endif
};

// The i-th term of n in the order of pairs: 1, 0, 3, 2, ...; what has no partner stays.
inline int64_t InPairs(int64_t i, int64_t n) { return (i ^ 1) < n ? i ^ 1 : i; }

// sum + the terms a[i] * b[i], in pairs.
inline float AddPairs(absl::Span<const float> a, absl::Span<const float> b, float sum) {
  const auto n = static_cast<int64_t>(a.size());
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(InPairs(i, n));
    sum = std::fma(a[at], b[at], sum);
  }
  return sum;
}

// values -> elements of a half, as instructions round; what f16 does not hold (bf16: zeros).
RangeCounts NarrowHalf(DType type, absl::Span<const float> values, absl::Span<std::byte> elements);
// The values that the type rounds `values` to.
void RoundToHalf(DType type, absl::Span<float> values);

}  // namespace runnel
