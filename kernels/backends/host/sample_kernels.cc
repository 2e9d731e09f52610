// Samples by a gate's choice, in plain loops.

#include <cstring>

#include "kernels/backends/host/plain_kernels.h"
#include "kernels/ir/arithmetic/sample_choice.h"

namespace runnel::host {

void HoldSamples(const Instruction& gate, const StepContext& context, int64_t samples,
                 float* choice) {
  const CounterRandom draws = GateDraws(context.run_seed, gate.layer, context.sequence);
  for (int64_t i = 0; i < samples; ++i) {
    choice[i * kChoiceColumns] = static_cast<float>(HeldOption(gate.attributes, draws, i));
  }
  OrderSamples(gate.attributes, samples, choice);
}

void TakeAllSamples(const Instruction& gate, int64_t samples, float* choice) {
  for (int64_t i = 0; i < samples; ++i)
    choice[i * kChoiceColumns] = static_cast<float>(OptionCount(gate.attributes) - 1);
  OrderSamples(gate.attributes, samples, choice);
}

void GatherSamples(const float* x, const float* choice, int64_t samples, int64_t size,
                   float* packed) {
  for (int64_t row = 0; row < samples; ++row) {
    const auto sample = static_cast<int64_t>(choice[row * kChoiceColumns + 1]);
    if (sample < 0 || sample >= samples) return;
    std::memcpy(packed + row * size, x + sample * size, static_cast<size_t>(size) * sizeof(float));
  }
}

void ScatterSamples(const float* packed, const float* choice, const float* base, int64_t samples,
                    int64_t size, float* y) {
  const size_t bytes = static_cast<size_t>(samples * size) * sizeof(float);
  if (base == nullptr) {
    std::memset(y, 0, bytes);
  } else if (base != y) {
    std::memcpy(y, base, bytes);
  }
  for (int64_t row = 0; row < samples; ++row) {
    const auto sample = static_cast<int64_t>(choice[row * kChoiceColumns + 1]);
    if (sample < 0 || sample >= samples) return;
    float* to = y + sample * size;
    const float* from = packed + row * size;
    for (int64_t e = 0; e < size; ++e) to[e] += from[e];
  }
}

absl::Status HoldSamples(const Call& call) {
  HoldSamples(call.instruction(), call.context, call.out_shape(0)[0], call.out(0));
  return absl::OkStatus();
}

absl::Status AllSamples(const Call& call) {
  TakeAllSamples(call.instruction(), call.out_shape(0)[0], call.out(0));
  return absl::OkStatus();
}

absl::Status GatherSamples(const Call& call) {
  const int64_t samples = call.in_shape(0)[0];
  GatherSamples(call.in(0), call.in(1), samples, call.in_shape(0).elements() / samples,
                call.out(0));
  return absl::OkStatus();
}

absl::Status ScatterSamples(const Call& call) {
  const int64_t samples = call.out_shape(0)[0];
  ScatterSamples(call.in(0), call.in(1),
                 call.has_input(kScatterBase) ? call.in(kScatterBase) : nullptr, samples,
                 call.out_shape(0).elements() / samples, call.out(0));
  return absl::OkStatus();
}

}  // namespace runnel::host
