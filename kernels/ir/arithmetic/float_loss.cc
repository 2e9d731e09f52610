#include "kernels/ir/arithmetic/float_loss.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace runnel {

absl::Status FloatCrossEntropy(const FloatLogits& logits, const int32_t* labels, float* gradient,
                               double* metrics) {
  const int64_t classes = logits.classes;
  const double samples = static_cast<double>(logits.step_labels);
  const double smoothing = logits.label_smoothing;
  const double at_each = smoothing / static_cast<double>(classes), at_label = 1 - smoothing;
  double losses = 0, correct = 0;
  for (int64_t n = 0; n < logits.samples; ++n) {
    const float* row = logits.values + n * classes;
    const int32_t label = labels[n];
    if (label < 0 || label >= classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("label ", label, " of sample ", n, " is not below ", classes, " classes"));
    }
    const float* largest = std::max_element(row, row + classes);
    double sum = 0, distances = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(row[c]) - *largest);
    for (int64_t c = 0; smoothing > 0 && c < classes; ++c)
      distances += static_cast<double>(row[c]) - *largest;
    losses += std::log(sum) - at_label * (static_cast<double>(row[label]) - *largest) -
              at_each * distances;
    correct += largest - row == label;
    if (gradient == nullptr) continue;
    for (int64_t c = 0; c < classes; ++c) {
      const double probability = std::exp(static_cast<double>(row[c]) - *largest) / sum;
      const double target = c == label ? at_label + at_each : at_each;
      gradient[n * classes + c] =
          static_cast<float>((probability - target) / samples * logits.loss_scale);
    }
  }
  metrics[0] = losses;
  metrics[1] = correct;
  return absl::OkStatus();
}

}  // namespace runnel
