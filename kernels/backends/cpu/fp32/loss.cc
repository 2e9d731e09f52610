// Softmax and cross-entropy of a handful of classes: plain loops, double inside.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "proto/base/training/mixed_label.h"

namespace runnel::fp32 {
namespace {

// Loss and gradient of one sample. Without a gradient it is an evaluation, whose labels are whole.
double CrossEntropy(const float* logits, int64_t classes, const MixedLabel& label,
                    const StepContext& context, float* gradient) {
  const double top = *std::max_element(logits, logits + classes);
  const auto samples = static_cast<double>(context.step_labels);
  const double smoothing = gradient == nullptr ? 0 : context.label_smoothing;
  const double at_each = smoothing / static_cast<double>(classes), at_label = 1 - smoothing;
  const double at_first = at_label * label.share(), at_second = at_label * (1 - label.share());
  double sum = 0, distances = 0;
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits[c] - top);
  for (int64_t c = 0; gradient != nullptr && c < classes; ++c) {
    const double p = std::exp(logits[c] - top) / sum;
    double target = at_each;
    if (c == label.first) target += at_first;
    if (c == label.second) target += at_second;
    gradient[c] = static_cast<float>((p - target) / samples * context.loss_scale);
  }
  for (int64_t c = 0; smoothing > 0 && c < classes; ++c) distances += logits[c] - top;
  return std::log(sum) - at_first * (logits[label.first] - top) -
         at_second * (logits[label.second] - top) - at_each * distances;
}

absl::Status Loss(const Call& call, float* gradient, double* metrics) {
  const int64_t samples = call.in_shape(0)[0], classes = call.in_shape(0)[1];
  const int32_t* labels = call.in<int32_t>(1);
  double loss = 0, correct = 0;
  for (int64_t n = 0; n < samples; ++n) {
    if (!IsLabelOf(labels[n], classes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("label ", labels[n], " of sample ", n, " is not in [0, ", classes, ")"));
    }
    const float* logits = call.in(0) + n * classes;
    const MixedLabel label = UnpackLabel(labels[n]);
    loss += CrossEntropy(logits, classes, label, *call.context,
                         gradient == nullptr ? nullptr : gradient + n * classes);
    correct += std::max_element(logits, logits + classes) - logits == label.larger() ? 1 : 0;
  }
  metrics[0] = loss;
  metrics[1] = correct;
  return absl::OkStatus();
}

}  // namespace

absl::Status SoftmaxCrossEntropy(Calls calls) {
  return Loss(calls[0], calls[0].out(0), calls[0].out<double>(1));
}
absl::Status SoftmaxCrossEntropyEval(Calls calls) {
  return Loss(calls[0], nullptr, calls[0].out<double>(0));
}

}  // namespace runnel::fp32
