// The kernels of kernels/backends/host/grid_kernels.h.

#include "kernels/backends/host/grid_kernels.h"
#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/symmetric_grid.h"

namespace runnel::ref {
namespace {

absl::Status PutOnLevels(const Call& call) {
  host::PutOnLevels(call.instruction(), call.context, call.in_shape(0), call.in(0), call.out(0));
  return absl::OkStatus();
}

}  // namespace

absl::Status SymmetricWeight(const Call& call) {
  const int64_t count = call.in_shape(0).elements();
  host::PutOnSymmetricGrid(call.in(0), count, LargestMagnitude(call.in(0), count), call.out(0));
  return absl::OkStatus();
}

absl::Status SymmetricActivation(const Call& call) {
  float* kept = call.has_output(1) ? call.out(1) : nullptr;
  host::SymmetricActivation(call.in(0), call.in_shape(0).elements(), kept, call.out(0));
  return absl::OkStatus();
}

absl::Status SymmetricActivationEval(const Call& call) {
  const float* kept = call.has_input(1) ? call.in(1) : nullptr;
  host::SymmetricActivationEval(call.in(0), call.in_shape(0).elements(), kept, call.out(0));
  return absl::OkStatus();
}

absl::Status ClippedError(const Call& call) {
  *call.out(1) = host::ClippedError(call.instruction(), call.context, call.in(0),
                                    call.in_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

absl::Status CounterDeviation(const Call& call) {
  host::CounterDeviation(call.in(0), call.in_shape(0).elements(), *call.in(1), call.adds(),
                         call.out(0));
  return absl::OkStatus();
}

absl::Status MultiLevelWeight(const Call& call) { return PutOnLevels(call); }
absl::Status MultiLevelActivation(const Call& call) { return PutOnLevels(call); }
absl::Status MultiLevelError(const Call& call) { return PutOnLevels(call); }

}  // namespace runnel::ref
