#pragma once

// Element loops of integer recipes beside those of int8/int8_kernels.h: pools, ReLU, sums. Compiled
// once an instruction set (loops_*.cc) from one plain source; all exact. Pure functions, any
// thread.

#include <cstdint>

#include "proto/base/host/isa.h"

namespace runnel::cpu {

struct IntegerLoops {
  Isa isa;
  // y[c] = the largest of x[t][c], taps[c] (if not null) the first t that has it.
  void (*max_of_taps)(const int8_t* const* x, int taps, int64_t channels, int8_t* y,
                      uint8_t* tap_of_max);
  // dx[t][c] = tap_of_max[c] == numbers[t] ? dy[c] : 0.
  void (*scatter_taps)(const int8_t* dy, const uint8_t* tap_of_max, const uint8_t* numbers,
                       int taps, int64_t channels, int8_t* const* dx);
  // y = max(x, 0); y may be x.
  void (*relu)(const int8_t* x, int64_t n, int8_t* y);
  // dx = y > 0 ? dy : 0; dx may be dy.
  void (*relu_gradient)(const int8_t* dy, const int8_t* y, int64_t n, int8_t* dx);
  // The largest |x|.
  int32_t (*max_abs_i8)(const int8_t* x, int64_t n);
  // sums[i] = a[i] * a_factor + b[i] * b_factor; returns the largest |sum|.
  int32_t (*weighted_sum)(const int8_t* a, int32_t a_factor, const int8_t* b, int32_t b_factor,
                          int64_t n, int32_t* sums);
  // sums[c] += x[c].
  void (*add_to_sums)(const int8_t* x, int64_t channels, int32_t* sums);
  // total = total / 2^total_shift + added / 2^added_shift, both towards zero, shifts in 0..63,
  // where 63 leaves nothing; with `first` the old total counts as 0. Returns the largest |total|.
  int64_t (*add_shifted_i32)(const int32_t* added, int added_shift, int total_shift, bool first,
                             int64_t n, int64_t* total);
  int64_t (*add_shifted_i64)(const int64_t* added, int added_shift, int total_shift, bool first,
                             int64_t n, int64_t* total);
  // out = saturate(w - saturate(PSR(g, shift))), shift in 0..62: the update of 64-bit gradients.
  void (*update_i64)(const int8_t* w, const int64_t* g, int shift, int64_t n, int8_t* out);
  // The two passes of Quantize (proto/base/tensor/quantize.h). Bits of the largest |x|, where NaN
  // counts as 0 and an infinite value as the largest float.
  uint32_t (*largest_magnitude)(const float* x, int64_t n);
  // Half away from zero: round(127 * x / largest), and round(x * factor) within -127..127 for a
  // factor that is a power of two.
  void (*quantize_by_largest)(const float* x, int64_t n, float largest, int8_t* out);
  void (*quantize_by_factor)(const float* x, int64_t n, double factor, int8_t* out);
};

// The best row that this machine can run and that needs no more than `isa`.
const IntegerLoops& IntegerLoopsFor(Isa isa);

}  // namespace runnel::cpu
