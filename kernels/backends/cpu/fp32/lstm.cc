// An LSTM's cell: so small beside the block behind its gate that one thread computes it.

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/ir/arithmetic/lstm_math.h"

namespace runnel::fp32 {

absl::Status LstmForward(Calls calls) {
  const Call& call = calls[0];
  lstm::Forward(call.in(0), call.inputs.size() > 1 ? call.in(1) : nullptr, call.out_shape(0)[0],
                call.out_shape(0)[1] / 2, call.out(0));
  return absl::OkStatus();
}

absl::Status LstmInputGradient(Calls calls) {
  const Call& call = calls[0];
  lstm::InputGradient(call.in(0), call.in(1), call.inputs.size() > 2 ? call.in(2) : nullptr,
                      call.in_shape(0)[0], call.in_shape(0)[1] / 2, call.out(0));
  return absl::OkStatus();
}

absl::Status LstmStateGradient(Calls calls) {
  const Call& call = calls[0];
  lstm::StateGradient(call.in(0), call.in(1), call.in(2), call.in_shape(0)[0],
                      call.in_shape(0)[1] / 2, call.out(0));
  return absl::OkStatus();
}

}  // namespace runnel::fp32
