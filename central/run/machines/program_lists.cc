#include "central/run/machines/program_lists.h"

namespace runnel {

void ProgramLists::Begin(const Plan& plan, const ProfileRequest& common,
                         const TrainingSettings& training, const Roster& roster,
                         RunEffects& effects) {
  plan_ = plan;
  listings_.assign(plan.stages.size(), {});
  const ModelSpec model = WithRecompute(common.model, plan);
  for (const auto [i, device] : plan.seats()) {
    const StagePlan& stage = plan.stages[i];
    awaited_.insert(i);
    const StageOrder order = stage.order();
    effects.push_back(SendControl{roster.device(device).connection,
                                  ProgramRequest{plan.generation,
                                                 model,
                                                 common.recipe,
                                                 common.backend,
                                                 {stage.first_layer, stage.last_layer},
                                                 common.micro_batch_size,
                                                 order == StageOrder(),
                                                 order.deferred_weight_gradients > 0,
                                                 training}});
  }
}

absl::StatusOr<bool> ProgramLists::Add(int device, const ProgramReport& report,
                                       const Roster& roster) {
  if (report.generation != plan_.generation) return false;
  const std::optional<size_t> stage = plan_.StageOf(device);
  if (!stage.has_value() || !awaited_.contains(*stage)) return false;
  if (!report.failure.empty()) return roster.FailureOf(device, report.failure, /*unfit=*/true);
  listings_[*stage] = report.listing;
  awaited_.erase(*stage);
  return awaited_.empty();
}

}  // namespace runnel
