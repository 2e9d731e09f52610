#pragma once

// Compares a stage's exact weight-gradients with those that the codecs leave, over the micro-batches
// of a dry run (proto/base/training/codecs/gradient_noise.h).

#include <vector>

#include "absl/types/span.h"
#include "proto/base/training/codecs/gradient_noise.h"

namespace runnel {

// One thread. Keeps three gradients.
class GradientComparison {
 public:
  // A micro-batch's exact gradient, then the same one's with codecs; always as many elements.
  void AddExact(absl::Span<const float> gradient);
  void AddCoded(absl::Span<const float> gradient);
  GradientSums sums() const;

 private:
  GradientSums sums_;  // deviations are sums of squares as yet
  std::vector<float> exact_;
  std::vector<float> total_;
  std::vector<float> error_total_;
};

}  // namespace runnel
