#include "central/run/machines/program_lists.h"

namespace runnel {

void ProgramLists::Begin(const Plan& plan, const ProfileRequest& common,
                         const TrainingSettings& training, const Roster& roster,
                         RunEffects& effects) {
  plan_ = plan;
  listings_.assign(plan.stages.size(), {});
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    awaited_.insert(i);
    const StageOrder order = stage.order();
    effects.push_back(SendControl{roster.device(stage.device.value()).connection,
                                  ProgramRequest{plan.generation,
                                                 common.model,
                                                 common.recipe,
                                                 common.backend,
                                                 {stage.first_layer, stage.last_layer},
                                                 common.micro_batch_size,
                                                 training.micro_batches > 1,
                                                 training.rescale,
                                                 training.batch_split,
                                                 order == StageOrder(),
                                                 order.deferred_weight_gradients > 0,
                                                 training.optimizer}});
  }
}

absl::StatusOr<bool> ProgramLists::Add(int device, const ProgramReport& report,
                                       const Roster& roster) {
  if (report.generation != plan_.generation) return false;
  for (const size_t i : awaited_) {
    if (plan_.stages[i].device.value() != device) continue;
    if (!report.failure.empty()) return roster.FailureOf(device, report.failure, /*unfit=*/true);
    listings_[i] = report.listing;
    awaited_.erase(i);
    return awaited_.empty();
  }
  return false;
}

}  // namespace runnel
