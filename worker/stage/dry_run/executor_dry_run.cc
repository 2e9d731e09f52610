// The part of StageExecutor that is about dry runs.

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
    RUNNEL_ASSIGN_OR_RETURN(programs,
                            CompiledStage::Create(*options_, memory_.backend(),
                                                  /*keeps_gradients=*/true));
  }
  auto dry = std::make_unique<DryRun>(numbers_);
  RUNNEL_ASSIGN_OR_RETURN(dry->statistics, state_->ReadStatistics());
  dry->trained_grid_bits = trained_grid_bits_;
  if (programs.has_value()) {
    RUNNEL_ASSIGN_OR_RETURN(dry->gradients, memory_.Allocate(programs->layout().gradient_bytes));
    state_->Exchange(dry->gradients);
    std::swap(free_scratch_, dry->free_scratch);
    dry->programs = std::exchange(programs_, *std::move(programs));
    memory_.Take(programs_.memory_bytes());
  }
  dry_run_ = std::move(dry);
  return absl::OkStatus();
}

absl::Status StageExecutor::EndDryRun() {
  const std::unique_ptr<DryRun> dry = std::move(dry_run_);
  trained_grid_bits_ = dry->trained_grid_bits;
  if (dry->programs.has_value()) {
    memory_.Take(-programs_.memory_bytes() - programs_.layout().gradient_bytes -
                 static_cast<int64_t>(free_scratch_.size()) * programs_.scratch_bytes());
    state_->Exchange(dry->gradients);
    std::swap(free_scratch_, dry->free_scratch);
    std::swap(programs_, *dry->programs);
  }
  memory_.SetKept(programs_.memory_bytes());
  return state_->WriteStatistics(dry->statistics);
}

absl::Status StageExecutor::ReadGradients(std::vector<float>& gradients) const {
  gradients.clear();
  if (forward_only_) return absl::OkStatus();
  return state_->ReadGradients(gradients);
}

}  // namespace runnel
