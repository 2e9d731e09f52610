#pragma once

// The loss of FP32 logits: of kSoftmaxCrossEntropy, for backends whose logits the host can read.

#include <cstdint>

#include "absl/status/status.h"

namespace runnel {

struct FloatLogits {
  const float* values;  // samples x classes
  int64_t samples;
  int64_t classes;
  int64_t step_labels;    // the gradient is divided by it,
  double loss_scale = 1;  // and multiplied with it
  // e: the target of a sample is 1 - e + e / classes at its label and e / classes elsewhere
  // (Szegedy et al., "Rethinking the Inception Architecture", 7; torch's label_smoothing).
  double label_smoothing = 0;
};

// metrics: double[2], the sum of losses and how many samples are right. gradient: as many as
// logits, or null. Labels may be mixed
// (proto/base/training/mixed_label.h). InvalidArgument for one that names no class of these.
absl::Status FloatCrossEntropy(const FloatLogits& logits, const int32_t* labels, float* gradient,
                               double* metrics);

}  // namespace runnel
