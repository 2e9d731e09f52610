// Tensors on fixed points, byte for byte as kernels/backends/ref/fixed.cc has them.

#include <algorithm>
#include <optional>

#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/backends/host/fixed_kernels.h"

namespace runnel::cpu {
namespace {

// body(begin, size) of parts of the first input's elements.
template <typename Body>
void OverElements(const Call& call, const Body& body) {
  ParallelFor(call.machine, call.in_shape(0).elements(),
              [&](int, int64_t begin, int64_t end) { body(begin, end - begin); });
}

// in(0) to out(0); none: it stays.
void PutOnSteps(const Call& call, const std::optional<StepGrid>& steps) {
  OverElements(call, [&](int64_t at, int64_t size) {
    const float* x = call.in(0) + at;
    float* y = call.out(0) + at;
    if (steps.has_value())
      call.machine.grids->floats.step_values(x, nullptr, size, *steps, y);
    else if (x != y)
      std::copy_n(x, size, y);
  });
}

double PowerOf(const Call& call) { return host::PowerOf(LargestOf(WholeRange(call))); }

std::optional<StepGrid> ErrorSteps(const Call& call) {
  const double power = PowerOf(call);
  if (power == 0) return std::nullopt;
  return StepsOfPower(power, call.instruction->grid.bits);
}

}  // namespace

absl::Status AdaptWidth(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const float* read = call.inputs.size() > 1 ? call.in(1) : nullptr;
  float* kept = call.outputs.size() > 1 ? call.out(1) : nullptr;
  PutOnSteps(call, host::AdaptedSteps(call.in(0), call.in_shape(0).elements(), read, kept));
  return absl::OkStatus();
}

absl::Status FixedPoint(absl::Span<const Call> calls) {
  PutOnSteps(calls[0], host::StepsOf(calls[0].instruction->grid));
  return absl::OkStatus();
}

absl::Status ShiftError(absl::Span<const Call> calls) {
  PutOnSteps(calls[0], ErrorSteps(calls[0]));
  return absl::OkStatus();
}

absl::Status FlagError(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const double power = PowerOf(call);
  if (power == 0) {
    PutOnSteps(call, std::nullopt);
    return absl::OkStatus();
  }
  OverElements(call, [&](int64_t at, int64_t size) {
    call.machine.grids->floats.flagged_values(call.in(0) + at, size, power,
                                              call.instruction->grid.bits, call.out(0) + at);
  });
  return absl::OkStatus();
}

absl::Status ShiftedReluInputGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const std::optional<StepGrid> steps = ErrorSteps(call);
  OverElements(call, [&](int64_t at, int64_t size) {
    const float* dy = call.in(0) + at;
    const float* y = call.in(1) + at;
    float* dx = call.out(0) + at;
    if (steps.has_value()) return call.machine.grids->floats.step_values(dy, y, size, *steps, dx);
    for (int64_t i = 0; i < size; ++i) dx[i] = y[i] > 0 ? dy[i] : 0;
  });
  return absl::OkStatus();
}

}  // namespace runnel::cpu
