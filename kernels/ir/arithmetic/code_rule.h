#pragma once

// What the instructions over codes compute (program.h, "INT8 inference"): a tensor of int64 words
// that lies among a program's parameters, so that every device reads it alike. The compiler of the
// DSP reads this header too.

#include <stdint.h>

namespace runnel {

// The first words.
struct CodeRule {
  int64_t zero_a = 0;    // of the first input; kPadCodes: the border; kRequantizeCodes: the zero of
                         // what the product read
  int64_t zero_b = 0;    // of the second
  int64_t factor_a = 0;  // kAddCodes: multipliers, 0..2^23; kEncodeCodes, kRealProductToCodes: the
                         // bits of a float >= 0; kRequantizeCodes: the largest magnitude of what
                         // the product read, 0: 127
  int64_t factor_b = 0;  // kRealProductToCodes: the bits of a double, the scale of its input codes
  int64_t shift = 1;     // kAddCodes: 1..62
  int64_t zero = 0;      // of the output, which is clamped
  int64_t lowest = -127;
  int64_t highest = 127;
};

// kRequantizeCodes: behind them, one for each channel of the output, or one for all.
struct CodeChannel {
  int64_t offset = 0;       // below 2^40
  int64_t multiplier = 0;   // 0..2^31 - 1
  int64_t shift = 1;        // 1..62
  int64_t weight_zero = 0;  // of a row sum
};

inline constexpr int64_t kCodeRuleWords = sizeof(CodeRule) / sizeof(int64_t);
inline constexpr int64_t kCodeChannelWords = sizeof(CodeChannel) / sizeof(int64_t);

// y = clamp(code + zero, lowest, highest), where code is, halves rounded away from zero:
//
//   kEncodeCodes      round((float)(x * factor_a)), a product with NaN as -10^6, at most 10^6
//   kRequantizeCodes  round(sum * multiplier * 2^-shift),
//                     sum = x + offset - weight_zero * row_sum, within +-(2^31 - 1)
//   kInt8ProductToCodes  kRequantizeCodes of the sums of x times the weights, in channels with a
//                     weight_zero less that times the sum of the group's x; outside of x lies
//                     zero_a. With `other`: kAddCodes of that code as a and of other as b
//   kRealProductToCodes  round((float)(sum * factor_a)) as kEncodeCodes, sum = bias + x w in FP32,
//                     tap by tap, in a tap input by input, each product rounded, then its sum;
//                     of codes x = (float)((code - zero_a) * factor_b); outside of x lies 0
//   kAddCodes         round(((a - zero_a) factor_a + (b - zero_b) factor_b) * 2^-shift)

}  // namespace runnel
