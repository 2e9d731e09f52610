// The kernels of kernels/backends/host/grid_kernels.h.

#include "kernels/backends/host/grid_kernels.h"
#include "kernels/backends/host/optimizer_update.h"
#include "kernels/backends/ref/ref_kernels.h"

namespace runnel::ref {
namespace {

absl::Status PutOnLevels(const Call& call) {
  host::PutOnLevels(call.instruction(), call.context, call.in_shape(0), call.in(0), call.out(0));
  return absl::OkStatus();
}

}  // namespace

absl::Status SymmetricWeight(const Call& call) {
  host::SymmetricWeight(call.instruction(), call.context, call.in(0), call.in_shape(0).elements(),
                        call.out(0));
  return absl::OkStatus();
}

absl::Status SymmetricActivation(const Call& call) {
  float* kept = call.has_output(1) ? call.out(1) : nullptr;
  host::SymmetricActivation(call.instruction(), call.context, call.in(0),
                            call.in_shape(0).elements(), kept, call.out(0));
  return absl::OkStatus();
}

absl::Status SymmetricActivationEval(const Call& call) {
  const float* kept = call.has_input(1) ? call.in(1) : nullptr;
  host::SymmetricActivationEval(call.in(0), call.in_shape(0).elements(), kept, call.out(0));
  return absl::OkStatus();
}

absl::Status SymmetricError(const Call& call) {
  host::SymmetricError(call.in(0), call.in_shape(0).elements(), call.grid().clip, call.out(0));
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

absl::Status SmallFloats(const Call& call) {
  host::PutOnSmallFloats(call.grid(), call.in(0), call.in_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

absl::Status RoundedUpdate(const Call& call) {
  const absl::Status status = host::UpdateByOptimizer(call);
  const int64_t count = call.in_shape(0).elements();
  host::RoundByDraws(call.instruction(), call.context, call.out(0), count, 0);
  const size_t slots = call.optimizer()->optimizer->slots().size();
  for (size_t k = 0; k < slots; ++k) {
    host::RoundByDraws(call.instruction(), call.context, call.in_out(2 + k), count,
                       static_cast<int>(k) + 1);
  }
  return status;
}

absl::Status MultiLevelWeight(const Call& call) { return PutOnLevels(call); }
absl::Status MultiLevelActivation(const Call& call) { return PutOnLevels(call); }
absl::Status MultiLevelError(const Call& call) { return PutOnLevels(call); }

}  // namespace runnel::ref
