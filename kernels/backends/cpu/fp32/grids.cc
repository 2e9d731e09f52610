// The kernels of kernels/backends/host/grid_kernels.h.

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/host/grid_kernels.h"

namespace runnel::fp32 {

absl::Status SymmetricWeight(Calls calls) {
  const Call& call = calls[0];
  host::SymmetricWeight(*call.instruction, *call.context, call.in(0), call.in_shape(0).elements(),
                        call.out(0));
  return absl::OkStatus();
}

absl::Status SymmetricActivation(Calls calls) {
  const Call& call = calls[0];
  float* kept = call.outputs.size() > 1 ? call.out(1) : nullptr;
  host::SymmetricActivation(*call.instruction, *call.context, call.in(0),
                            call.in_shape(0).elements(), kept, call.out(0));
  return absl::OkStatus();
}

absl::Status SymmetricActivationEval(Calls calls) {
  const Call& call = calls[0];
  const float* kept = call.inputs.size() > 1 ? call.in(1) : nullptr;
  host::SymmetricActivationEval(call.in(0), call.in_shape(0).elements(), kept, call.out(0));
  return absl::OkStatus();
}

absl::Status SymmetricError(Calls calls) {
  const Call& call = calls[0];
  host::SymmetricError(call.in(0), call.in_shape(0).elements(), call.instruction->grid.clip,
                       call.out(0));
  return absl::OkStatus();
}

absl::Status ClippedError(Calls calls) {
  const Call& call = calls[0];
  *call.out(1) = host::ClippedError(*call.instruction, *call.context, call.in(0),
                                    call.in_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

absl::Status CounterDeviation(Calls calls) {
  const Call& call = calls[0];
  host::CounterDeviation(call.in(0), call.in_shape(0).elements(), *call.in(1),
                         call.context->accumulate && !call.instruction->overwrites, call.out(0));
  return absl::OkStatus();
}

absl::Status SmallFloats(Calls calls) {
  const Call& call = calls[0];
  host::PutOnSmallFloats(call.instruction->grid, call.in(0), call.in_shape(0).elements(),
                         call.out(0));
  return absl::OkStatus();
}

absl::Status RoundedUpdate(Calls calls) {
  const Call& call = calls[0];
  const absl::Status status = UpdateByOptimizer(calls);
  const int64_t count = call.in_shape(0).elements();
  host::RoundByDraws(*call.instruction, *call.context, call.out(0), count, 0);
  const size_t slots = call.instruction->optimizer->optimizer->slots().size();
  for (size_t k = 0; k < slots; ++k) {
    host::RoundByDraws(*call.instruction, *call.context,
                       reinterpret_cast<float*>(call.inputs[2 + k].data), count,
                       static_cast<int>(k) + 1);
  }
  return status;
}

}  // namespace runnel::fp32
