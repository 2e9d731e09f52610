// Samples by a gate's choice.

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/host/plain_kernels.h"

namespace runnel::fp32 {

absl::Status HoldSamples(Calls calls) {
  const Call& call = calls[0];
  host::HoldSamples(*call.instruction, *call.context, call.out_shape(0)[0], call.out(0));
  return absl::OkStatus();
}

absl::Status AllSamples(Calls calls) {
  const Call& call = calls[0];
  host::TakeAllSamples(*call.instruction, call.out_shape(0)[0], call.out(0));
  return absl::OkStatus();
}

absl::Status GatherSamples(Calls calls) {
  const Call& call = calls[0];
  const int64_t samples = call.in_shape(0)[0];
  host::GatherSamples(call.in(0), call.in(1), samples, call.in_shape(0).elements() / samples,
                      call.out(0));
  return absl::OkStatus();
}

absl::Status ScatterSamples(Calls calls) {
  const Call& call = calls[0];
  const int64_t samples = call.out_shape(0)[0];
  const float* base = call.inputs.size() > kScatterBase ? call.in(kScatterBase) : nullptr;
  host::ScatterSamples(call.in(0), call.in(1), base, samples,
                       call.out_shape(0).elements() / samples, call.out(0));
  return absl::OkStatus();
}

}  // namespace runnel::fp32
