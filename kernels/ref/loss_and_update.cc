#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/ref/ref_kernels.h"

namespace runnel::ref {
namespace {

// The metrics of a micro-batch, and its logits gradient unless `gradient` is null.
absl::Status CrossEntropy(const Call& call, float* gradient, double* metrics) {
  const int64_t batch = call.in_shape(0)[0], classes = call.in_shape(0)[1];
  const double samples = static_cast<double>(call.context.step_samples);
  double losses = 0, correct = 0;
  for (int64_t n = 0; n < batch; ++n) {
    const float* logits = call.in(0) + n * classes;
    const int32_t label = call.in<int32_t>(1)[n];
    if (label < 0 || label >= classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("label ", label, " of sample ", n, " is not below ", classes, " classes"));
    }
    const float* largest = std::max_element(logits, logits + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c)
      sum += std::exp(static_cast<double>(logits[c]) - *largest);
    losses += std::log(sum) - (static_cast<double>(logits[label]) - *largest);
    correct += largest - logits == label;
    if (gradient == nullptr) continue;
    for (int64_t c = 0; c < classes; ++c) {
      const double probability = std::exp(static_cast<double>(logits[c]) - *largest) / sum;
      gradient[n * classes + c] = static_cast<float>((probability - (c == label)) / samples);
    }
  }
  metrics[0] = losses;
  metrics[1] = correct;
  return absl::OkStatus();
}

}  // namespace

absl::Status SoftmaxCrossEntropy(const Call& call) {
  return CrossEntropy(call, call.out(0), call.out<double>(1));
}

absl::Status SoftmaxCrossEntropyEval(const Call& call) {
  return CrossEntropy(call, nullptr, call.out<double>(0));
}

// In float, one operation after the other.
absl::Status SgdUpdate(const Call& call) {
  const float* weights = call.in(0);
  const float* gradients = call.in(1);
  float* velocity = call.in_out(2);
  float* updated = call.out(0);
  const float learning_rate = static_cast<float>(call.context.learning_rate);
  const float momentum = static_cast<float>(call.context.momentum);
  const float weight_decay = static_cast<float>(call.context.weight_decay);
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) {
    const float gradient = gradients[i] + weight_decay * weights[i];
    velocity[i] = momentum * velocity[i] + gradient;
    updated[i] = weights[i] - learning_rate * velocity[i];
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
