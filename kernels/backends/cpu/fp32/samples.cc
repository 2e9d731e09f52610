// Samples by a gate's choice.

#include <algorithm>

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/cpu/fp32/kernel_table.h"
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
  const host::ChoiceRows choice = RowsOf(call, 1);
  const int64_t size = call.in_shape(0).elements() / call.in_shape(0)[0];
  cpu::ParallelFor(call.machine, choice.samples, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t sample = choice.SampleOf(row);
      if (sample >= 0) std::copy_n(call.in(0) + sample * size, size, call.out(0) + row * size);
    }
  });
  return absl::OkStatus();
}

// Sample by sample, so that each goes through the caches once.
absl::Status ScatterSamples(Calls calls) {
  const Call& call = calls[0];
  const host::ChoiceRows choice = RowsOf(call, 1);
  const int64_t size = call.out_shape(0).elements() / call.out_shape(0)[0];
  const float* base = call.inputs.size() > kScatterBase ? call.in(kScatterBase) : nullptr;
  auto* rows = call.Take<int64_t>(choice.samples);  // by sample; -1: it skips
  std::fill_n(rows, choice.samples, int64_t{-1});
  for (int64_t row = 0; row < choice.samples && choice.SampleOf(row) >= 0; ++row)
    rows[choice.SampleOf(row)] = row;
  cpu::ParallelFor(call.machine, choice.samples, [&](int, int64_t begin, int64_t end) {
    for (int64_t sample = begin; sample < end; ++sample) {
      float* y = call.out(0) + sample * size;
      const float* from = base == nullptr ? y : base + sample * size;
      if (base == nullptr) std::fill_n(y, size, 0.0f);
      if (rows[sample] >= 0) {
        call.kernels().add(from, call.in(0) + rows[sample] * size, size, y);
      } else if (from != y) {
        std::copy_n(from, size, y);
      }
    }
  });
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
