// The kernels of kernels/backends/host/fixed_kernels.h and fixed_norm.h.

#include "kernels/backends/host/fixed_kernels.h"
#include "kernels/backends/host/fixed_norm.h"
#include "kernels/backends/ref/ref_kernels.h"

namespace runnel::ref {
namespace {

host::Compensation CompensationOf(const Call& call) {
  return {call.in(1), call.in(2), call.in(3), call.in_shape(1).elements()};
}

}  // namespace

absl::Status AdaptWidth(const Call& call) {
  const float* read = call.has_input(1) ? call.in(1) : nullptr;
  float* kept = call.has_output(1) ? call.out(1) : nullptr;
  host::AdaptWidth(call.in(0), call.in_shape(0).elements(), read, kept, call.out(0));
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
  host::FixedPoint(call.grid(), call.in(0), call.in_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

absl::Status ShiftError(const Call& call) {
  host::ShiftError(call.grid().bits, call.in(0), call.in_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

absl::Status FlagError(const Call& call) {
  host::FlagError(call.grid().bits, call.in(0), call.in_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

absl::Status ShiftedReluInputGradient(const Call& call) {
  host::ShiftedReluGradient(call.grid().bits, call.in(0), call.in(1), call.in_shape(0).elements(),
                            call.out(0));
  return absl::OkStatus();
}

absl::Status FixedNormForward(const Call& call) {
  host::FixedNormForward(call.instruction(), call.in_shape(0), call.in(0), call.in(1), call.in(2),
                         {call.out(1), call.out(2), call.out(3)}, call.out(0));
  return absl::OkStatus();
}

absl::Status FixedNormEval(const Call& call) {
  host::FixedNormEval(call.instruction(), call.in_shape(0), call.in(0), call.in(1), call.in(2),
                      call.in(3), call.in(4), call.out(0));
  return absl::OkStatus();
}

absl::Status FixedNormInputGradient(const Call& call) {
  host::FixedNormInputGradient(call.instruction(), call.in_shape(0), call.in(0), call.in(1),
                               call.in(2), call.in(3), call.out(0), call.out(1));
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
