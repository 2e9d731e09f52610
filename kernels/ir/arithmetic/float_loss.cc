#include "kernels/ir/arithmetic/float_loss.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/base/training/mixed_label.h"

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
    if (!IsLabelOf(labels[n], classes)) {
      return absl::InvalidArgumentError(absl::StrCat("label ", labels[n], " of sample ", n,
                                                     " is not below ", classes, " classes"));
    }
    const MixedLabel label = UnpackLabel(labels[n]);
    const double at_first = at_label * label.share(), at_second = at_label * (1 - label.share());
    const float* largest = std::max_element(row, row + classes);
    double sum = 0, distances = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(row[c]) - *largest);
    for (int64_t c = 0; smoothing > 0 && c < classes; ++c)
      distances += static_cast<double>(row[c]) - *largest;
    losses += std::log(sum) - at_first * (static_cast<double>(row[label.first]) - *largest) -
              at_second * (static_cast<double>(row[label.second]) - *largest) - at_each * distances;
    correct += largest - row == label.larger();
    if (gradient == nullptr) continue;
    for (int64_t c = 0; c < classes; ++c) {
      const double probability = std::exp(static_cast<double>(row[c]) - *largest) / sum;
      double target = at_each;
      if (c == label.first) target += at_first;
      if (c == label.second) target += at_second;
      gradient[n * classes + c] =
          static_cast<float>((probability - target) / samples * logits.loss_scale);
    }
  }
  metrics[0] = losses;
  metrics[1] = correct;
  return absl::OkStatus();
}

}  // namespace runnel
