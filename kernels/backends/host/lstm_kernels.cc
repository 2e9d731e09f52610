// An LSTM's cell, in plain loops.

#include "kernels/backends/host/plain_kernels.h"
#include "kernels/ir/arithmetic/lstm_math.h"

namespace runnel::host {

absl::Status LstmForward(const Call& call) {
  lstm::Forward(call.in(0), call.has_input(1) ? call.in(1) : nullptr, call.out_shape(0)[0],
                call.out_shape(0)[1] / 2, call.out(0));
  return absl::OkStatus();
}

absl::Status LstmInputGradient(const Call& call) {
  lstm::InputGradient(call.in(0), call.in(1), call.has_input(2) ? call.in(2) : nullptr,
                      call.in_shape(0)[0], call.in_shape(0)[1] / 2, call.out(0));
  return absl::OkStatus();
}

absl::Status LstmStateGradient(const Call& call) {
  lstm::StateGradient(call.in(0), call.in(1), call.in(2), call.in_shape(0)[0],
                      call.in_shape(0)[1] / 2, call.out(0));
  return absl::OkStatus();
}

}  // namespace runnel::host
