// The part of StageExecutor that is about dry runs.

#include <cstring>
#include <utility>
#include <vector>

#include "proto/base/status_macros.h"
#include "worker/stage/stage_executor.h"

namespace runnel {

// Where backwards take the step, a dry run has programs of its own, which do not, and memory for
// their gradients.
absl::Status StageExecutor::BeginDryRun() {
  for (const StateTensor& tensor : programs_.layout().tensors) {
    if (IsTrainable(tensor.spec.role) && !HasSlots(tensor.spec) && !tensor.spec.frozen)
      return absl::UnimplementedError("a dry run of weights that are no floats");
  }
  std::optional<CompiledStage> programs;
  if (programs_.steps_in_backward()) {
    RUNNEL_ASSIGN_OR_RETURN(programs, CompiledStage::Create(options_, optimizer_.optimizer,
                                                            *backend_, /*keeps_gradients=*/true));
  }
  auto dry = std::make_unique<DryRun>();
  RUNNEL_ASSIGN_OR_RETURN(const Mapping statistics, Mapping::Of(*statistics_, MapAccess::kRead));
  const auto statistic_bytes = static_cast<size_t>(programs_.layout().statistic_bytes);
  dry->statistics.assign(statistics.data(), statistics.data() + statistic_bytes);
  dry->trained_grid_bits = trained_grid_bits_;
  if (programs.has_value()) {
    RUNNEL_ASSIGN_OR_RETURN(dry->gradients, allocate_(programs->layout().gradient_bytes));
    std::swap(gradients_, dry->gradients);
    std::swap(free_scratch_, dry->free_scratch);
    dry->programs = std::exchange(programs_, *std::move(programs));
    *memory_bytes_ += programs_.memory_bytes();
  }
  dry_run_ = std::move(dry);
  return absl::OkStatus();
}

absl::Status StageExecutor::EndDryRun() {
  const std::unique_ptr<DryRun> dry = std::move(dry_run_);
  trained_grid_bits_ = dry->trained_grid_bits;
  if (dry->programs.has_value()) {
    *memory_bytes_ -= programs_.memory_bytes() + programs_.layout().gradient_bytes +
                      static_cast<int64_t>(free_scratch_.size()) * programs_.scratch_bytes();
    std::swap(gradients_, dry->gradients);
    std::swap(free_scratch_, dry->free_scratch);
    std::swap(programs_, *dry->programs);
  }
  CountKept();
  RUNNEL_ASSIGN_OR_RETURN(const Mapping statistics,
                          Mapping::Of(*statistics_, MapAccess::kReadWrite));
  std::memcpy(statistics.data(), dry->statistics.data(), dry->statistics.size());
  return absl::OkStatus();
}

absl::Status StageExecutor::ReadGradients(std::vector<float>& gradients) const {
  gradients.clear();
  if (forward_only_) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const Mapping from, Mapping::Of(*gradients_, MapAccess::kRead));
  for (const StateTensor& tensor : programs_.layout().tensors) {
    if (tensor.storage != Storage::kParameters || !HasSlots(tensor.spec)) continue;
    const auto* values = reinterpret_cast<const float*>(from.data() + tensor.gradient_offset_bytes);
    gradients.insert(gradients.end(), values, values + tensor.spec.shape.elements());
  }
  return absl::OkStatus();
}

}  // namespace runnel
