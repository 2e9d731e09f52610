// Compensations and updates of kernels/backends/host/fixed_kernels.h.

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/host/fixed_kernels.h"

namespace runnel::fp32 {
namespace {

host::Compensation CompensationOf(const Call& call) {
  return {call.in(1), call.in(2), call.in(3), call.in_shape(1).elements()};
}

}  // namespace

absl::Status Compensate(Calls calls) {
  const Call& call = calls[0];
  host::Compensate(CompensationOf(call), call.in(0), call.in_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

absl::Status CompensationGradient(Calls calls) {
  const Call& call = calls[0];
  host::CompensationGradient(CompensationOf(call), *call.context, call.in(0),
                             call.in_shape(0).elements(),
                             call.context->accumulate && !call.instruction->overwrites,
                             {call.out(0), call.out(1), call.out(2)});
  return absl::OkStatus();
}

absl::Status FixedUpdate(Calls calls) {
  const Call& call = calls[0];
  float* slots[kMostSlots] = {};
  for (size_t k = 2; k < call.inputs.size(); ++k)
    slots[k - 2] = reinterpret_cast<float*>(call.inputs[k].data);
  host::FixedUpdate(*call.instruction, *call.context, call.in(0), call.in(1), slots,
                    call.in_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

}  // namespace runnel::fp32
