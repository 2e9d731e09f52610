// The kernels of kernels/backends/host/grid_kernels.h.

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/host/grid_kernels.h"
#include "kernels/ir/arithmetic/symmetric_grid.h"

namespace runnel::fp32 {
namespace {

absl::Status PutOnLevels(const Call& call) {
  host::PutOnLevels(*call.instruction, *call.context, call.in_shape(0), call.in(0), call.out(0));
  return absl::OkStatus();
}

}  // namespace

absl::Status SymmetricWeight(Calls calls) {
  const Call& call = calls[0];
  const int64_t count = call.in_shape(0).elements();
  host::PutOnSymmetricGrid(call.in(0), count, LargestMagnitude(call.in(0), count), call.out(0));
  return absl::OkStatus();
}

absl::Status SymmetricActivation(Calls calls) {
  const Call& call = calls[0];
  float* kept = call.outputs.size() > 1 ? call.out(1) : nullptr;
  host::SymmetricActivation(call.in(0), call.in_shape(0).elements(), kept, call.out(0));
  return absl::OkStatus();
}

absl::Status SymmetricActivationEval(Calls calls) {
  const Call& call = calls[0];
  const float* kept = call.inputs.size() > 1 ? call.in(1) : nullptr;
  host::SymmetricActivationEval(call.in(0), call.in_shape(0).elements(), kept, call.out(0));
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

absl::Status MultiLevelWeight(Calls calls) { return PutOnLevels(calls[0]); }
absl::Status MultiLevelActivation(Calls calls) { return PutOnLevels(calls[0]); }
absl::Status MultiLevelError(Calls calls) { return PutOnLevels(calls[0]); }

}  // namespace runnel::fp32
