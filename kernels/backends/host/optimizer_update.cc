#include "kernels/backends/host/optimizer_update.h"

namespace runnel::host {

absl::Status UpdateByOptimizer(const Call& call) {
  const OptimizerStep& step = *call.optimizer();
  float* slots[kMostSlots] = {};
  for (size_t k = 2; call.has_input(k); ++k) slots[k - 2] = call.in_out(k);
  step.update(step.scalars(call.context), call.in(0), call.in(1), slots,
              call.in_shape(0).elements(), call.out(0));
  return absl::OkStatus();
}

}  // namespace runnel::host
