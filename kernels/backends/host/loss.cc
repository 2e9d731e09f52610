#include "kernels/backends/host/plain_kernels.h"
#include "kernels/ir/arithmetic/float_loss.h"

namespace runnel::host {
namespace {

// Of an evaluation labels are whole.
FloatLogits LogitsOf(const Call& call, double label_smoothing = 0) {
  return {call.in(0),
          call.in_shape(0)[0],
          call.in_shape(0)[1],
          call.context.step_labels,
          call.context.loss_scale,
          label_smoothing};
}

}  // namespace

absl::Status SoftmaxCrossEntropy(const Call& call) {
  return FloatCrossEntropy(LogitsOf(call, call.context.label_smoothing), call.in<int32_t>(1),
                           call.out(0), call.out<double>(1));
}

absl::Status SoftmaxCrossEntropyEval(const Call& call) {
  return FloatCrossEntropy(LogitsOf(call), call.in<int32_t>(1), nullptr, call.out<double>(0));
}

}  // namespace runnel::host
