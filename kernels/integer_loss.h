#pragma once

// Integer softmax cross-entropy of NITI (specs/niti.md 4.1). Small next to everything else, so ref
// and the fast backends share it. Any thread.

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
