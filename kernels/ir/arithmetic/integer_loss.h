#pragma once

// Integer softmax cross-entropy of NITI, for logits v_j * 2^e and target t:
//   e > -7:  s_j = trunc(v_j * 47274 / 2^15) * 2^e (log2(e) = 1.4427), s_j = max(0, s_j - max s +
//   10),
//            g_j = 2^s_j - 1
//   else:    g_j = 2^(1-2e) + v_j * 2^(1-e) + v_j^2 (the exponential's Taylor series)
//   p_j = floor(2048 * g_j / sum of g), p_t -= sum of p; the gradient is p shifted right by 4,
//   rounded.
// Small next to everything else, so ref and the fast backends share it. Any thread.

#include <cstdint>

#include "absl/status/status.h"

namespace runnel {

struct IntegerLogits {
  const int8_t* mantissas = nullptr;  // [samples][classes]
  int64_t samples = 0;
  int64_t classes = 0;
  int32_t exponent = 0;
};

// The shift that turns step 6 into mantissas (step 7).
inline constexpr int kLossShift = 4;

// gradient int32[samples][classes]: the values after step 6, each row sums to zero, in -2048..2048;
// null if none is wanted. metrics double[2]: the sum of the real losses of m * 2^e, and the number
// of samples whose first largest logit is the label. InvalidArgument for a label outside
// [0, classes).
absl::Status IntegerCrossEntropy(const IntegerLogits& logits, const int32_t* labels,
                                 int32_t* gradient, double* metrics);

}  // namespace runnel
