#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/float_loss.h"

namespace runnel::ref {
namespace {

FloatLogits LogitsOf(const Call& call) {
  return {call.in(0), call.in_shape(0)[0], call.in_shape(0)[1], call.context.step_samples};
}

}  // namespace

absl::Status SoftmaxCrossEntropy(const Call& call) {
  return FloatCrossEntropy(LogitsOf(call), call.in<int32_t>(1), call.out(0), call.out<double>(1));
}

absl::Status SoftmaxCrossEntropyEval(const Call& call) {
  return FloatCrossEntropy(LogitsOf(call), call.in<int32_t>(1), nullptr, call.out<double>(0));
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
