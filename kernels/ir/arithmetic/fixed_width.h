#pragma once

// Fixed points whose widths follow what rounding does to a tensor (Zhang et al., CVPR 2020: error
// and precision of a quantisation), as kernels/ir/op_traits.inc says of kAdaptWidth. Backends agree
// with it to the bit. Pure functions; any thread.
//
// A value is q * 2^s, q an integer within +-(2^(n-1) - 1), halves to even; n: 8, 16 or 24 bits.
// A measurement begins at n = 8, s the least with which max|x| fits. While
//   error = log2(1 + |mean|x| - mean|value|| / mean|x|) > 0.03
// and n < 24, it takes 8 bits more, s and the moving mean m of s 8 less. Then, with d = max(0.04 * |s -
// m|, 100 * error^2), m moves by 0.04 of the way to s, and the next measurement is I = 0.1 / d - 2
// micro-batches later, at least 1 and at most 100. The first 10 measurements follow each other, and m
// is s. In between n and s stay, and values beyond them saturate; where more than one in a thousand
// would, the measurement is due at once (ours: without it a network without batch norm stops learning
// when its activations grow after the first measurements).

#include <cstdint>

#include "kernels/ir/arithmetic/fixed_point.h"
#include "proto/base/model/width_state.h"

namespace runnel {

// The least s with which `largest` > 0 is within (2^(bits-1) - 1) * 2^s; -12 for 0.
int WidthExponent(float largest, int bits);
StepGrid StepsOfWidth(int bits, int exponent);
// log2(1 + |mean|x| - mean|value|| / mean|x|); 0 for zeros.
double WidthError(const float* x, int64_t count, int bits, int exponent);
// log2(1 + x) for x >= 0, the same bytes everywhere.
double LogOfOnePlus(double x);

// The state of the next micro-batch, whose values are x: measured if it is due. A tensor with a value
// that is not finite leaves the state as it is.
WidthState NextWidths(const WidthState& state, const float* x, int64_t count);

}  // namespace runnel
