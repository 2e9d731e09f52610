// Samples by a gate's choice.

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/host/plain_kernels.h"

namespace runnel::fp32 {
namespace {

host::ChoiceRows RowsOf(const Call& call, size_t input) {
  return {call.in(input), call.in_shape(input)[0], call.in_shape(input)[1]};
}

}  // namespace

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

absl::Status ChooseSamples(Calls calls) {
  const Call& call = calls[0];
  host::ChooseSamples(*call.instruction, *call.context, call.in(0), call.in_shape(0)[0],
                      call.out(0), call.outputs.size() > 1 ? call.out(1) : nullptr);
  return absl::OkStatus();
}

absl::Status GatherSamples(Calls calls) {
  const Call& call = calls[0];
  host::GatherSamples(call.in(0), RowsOf(call, 1),
                      call.in_shape(0).elements() / call.in_shape(0)[0], call.out(0));
  return absl::OkStatus();
}

absl::Status ScatterSamples(Calls calls) {
  const Call& call = calls[0];
  const float* base = call.inputs.size() > kScatterBase ? call.in(kScatterBase) : nullptr;
  host::ScatterSamples(call.in(0), RowsOf(call, 1), base,
                       call.out_shape(0).elements() / call.out_shape(0)[0], call.out(0));
  return absl::OkStatus();
}

absl::Status MaskGradient(Calls calls) {
  const Call& call = calls[0];
  host::MaskGradient(call.in(0), call.in(1), RowsOf(call, 2), call.in(3), RowsOf(call, 4),
                     call.in_shape(0).elements() / call.in_shape(0)[0], call.out(0));
  return absl::OkStatus();
}

absl::Status ChoiceGradient(Calls calls) {
  const Call& call = calls[0];
  host::ChoiceGradient(*call.instruction, *call.context, call.in(0), RowsOf(call, 1), call.out(0));
  return absl::OkStatus();
}

}  // namespace runnel::fp32
