// Fixed points of whole tensors (kernels/ir/arithmetic/fixed_width.h, fixed_point.h) in plain loops.

#include <optional>

#include "kernels/backends/host/fixed_kernels.h"
#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/fixed_point.h"
#include "kernels/ir/arithmetic/symmetric_grid.h"

namespace runnel::ref {
namespace {

host::Compensation CompensationOf(const Call& call) {
  return {call.in(1), call.in(2), call.in(3), call.in_shape(1).elements()};
}

double PowerOf(const Call& call) {
  return host::PowerOf(LargestMagnitude(call.in(0), call.in_shape(0).elements()));
}

// A tensor of zeros, or with a value that is not finite, stays as it is.
std::optional<StepGrid> ErrorSteps(const Call& call) {
  const double power = PowerOf(call);
  return power == 0 ? std::nullopt : std::optional(StepsOfPower(power, call.grid().bits));
}

void PutOnSteps(const Call& call, const std::optional<StepGrid>& steps) {
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i)
    call.out(0)[i] = steps.has_value() ? steps->ValueOf(call.in(0)[i]) : call.in(0)[i];
}

}  // namespace

absl::Status AdaptWidth(const Call& call) {
  const float* read = call.has_input(1) ? call.in(1) : nullptr;
  float* kept = call.has_output(1) ? call.out(1) : nullptr;
  const int64_t count = call.in_shape(0).elements();
  PutOnSteps(call, host::AdaptedSteps(call.in(0), count, read, kept));
  return absl::OkStatus();
}

absl::Status Compensate(const Call& call) {
  host::Compensate(CompensationOf(call), call.in(0), call.in_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

absl::Status CompensationGradient(const Call& call) {
  host::CompensationGradient(CompensationOf(call), call.context, call.in(0),
                             call.in_shape(0).elements(), call.adds(),
                             {call.out(0), call.out(1), call.out(2)});
  return absl::OkStatus();
}

absl::Status FixedPoint(const Call& call) {
  PutOnSteps(call, host::StepsOf(call.grid()));
  return absl::OkStatus();
}

absl::Status ShiftError(const Call& call) {
  PutOnSteps(call, ErrorSteps(call));
  return absl::OkStatus();
}

absl::Status FlagError(const Call& call) {
  const double power = PowerOf(call);
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) {
    const float dy = call.in(0)[i];
    call.out(0)[i] =
        power == 0 ? dy : static_cast<float>(FlaggedValue(dy, power, call.grid().bits));
  }
  return absl::OkStatus();
}

absl::Status ShiftedReluInputGradient(const Call& call) {
  const std::optional<StepGrid> steps = ErrorSteps(call);
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) {
    const float dy = call.in(0)[i], value = steps.has_value() ? steps->ValueOf(dy) : dy;
    call.out(0)[i] = call.in(1)[i] > 0 ? value : 0;
  }
  return absl::OkStatus();
}

absl::Status FixedUpdate(const Call& call) {
  float* slots[kMostSlots] = {};
  for (size_t k = 2; call.has_input(k); ++k) slots[k - 2] = call.in_out(k);
  host::FixedUpdate(call.instruction(), call.context, call.in(0), call.in(1), slots,
                    call.in_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

}  // namespace runnel::ref
