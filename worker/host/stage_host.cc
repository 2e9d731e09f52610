#include "worker/host/stage_host.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ir/optimizers/momentum_lead.h"
#include "kernels/ir/recipe.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/int8_inference.h"
#include "proto/base/training/raised_cap.h"
#include "worker/host/pipeline_host.h"
#include "worker/host/plain_host.h"

namespace runnel {
namespace {

// Over many steps momentum leads astray: pipelines with raised caps have a rate that grows and look-ahead.
int64_t DelayOf(const PrepareStage& stage, int64_t cap) {
  auto usual_cap = static_cast<int64_t>(stage.plan.stages.size());
  for (const StagePlan& one : stage.plan.stages) {
    const int64_t steps_old = MostStepsOld(stage.training, one.cap);
    if (IsRaised(one.cap, usual_cap--, steps_old)) return optimizers::kLeadsNowhere;
  }
  return UsualStepsOld(stage.training, cap);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StageHost>> MakeStageHost(const PrepareStage& stage,
                                                         const StageEnvironment& environment,
                                                         const MakeEngineFn& make_engine,
                                                         StageEvents events) {
  RUNNEL_RETURN_IF_ERROR(CheckPlan(stage.plan, stage.model));
  if (stage.stage < 0 || stage.stage >= static_cast<int>(stage.plan.stages.size())) {
    return absl::InvalidArgumentError(absl::StrCat("stage ", stage.stage, " is not in the plan"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(stage.training));
  if (stage.training.clip_norm > 0 && !stage.plan.drains_each_step && !stage.plain_loop)
    return absl::InvalidArgumentError("clips gradients, and its plan is asynchronous");
  StageExecutorOptions options;
  options.model = stage.model;
  options.first_layer = stage.plan.stages[stage.stage].first_layer;
  options.last_layer = stage.plan.stages[stage.stage].last_layer;
  options.training = stage.training;
  options.changes = stage.changes;
  options.eval_samples = stage.eval_samples;
  options.usual_cap = static_cast<int64_t>(stage.plan.stages.size()) - stage.stage;
  const StageOrder order = stage.plain_loop ? StageOrder() : stage.plan.stages[stage.stage].order();
  options.cap = order.cap;
  if (!stage.plan.drains_each_step) options.delay = DelayOf(stage, order.cap);
  options.clock = &environment.loop->clock();
  options.one_in_flight = order == StageOrder();
  options.defers_weight_gradients = order.deferred_weight_gradients > 0;
  if (stage.recipe != kInt8Inference) {
    RUNNEL_ASSIGN_OR_RETURN(options.recipe, FindRecipe(stage.recipe));
  }
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<StageEngine> engine, make_engine(options));
  RUNNEL_RETURN_IF_ERROR(stage.draws_state ? engine->DrawState()
                                           : engine->ImportState(stage.state));
  if (stage.plain_loop) {
    if (stage.plan.stages.size() != 1)
      return absl::InvalidArgumentError("the plain loop has one stage");
    return std::make_unique<PlainHost>(stage, environment, batching, std::move(engine),
                                       std::move(events));
  }
  RUNNEL_ASSIGN_OR_RETURN(LinkLevels levels,
                          LinkLevels::Of(stage.recipe, stage.training, stage.model));
  LinkRun run = {stage.training.seed, stage.training.dataset_samples, std::move(levels),
                 stage.changes};
  RUNNEL_ASSIGN_OR_RETURN(
      std::unique_ptr<LinkCodecs> codecs,
      LinkCodecs::Create(stage.plan, stage.stage, std::move(run), engine->numbers()));
  RUNNEL_RETURN_IF_ERROR(codecs->RestoreStates(stage.state.encoders));
  return std::make_unique<PipelineHost>(stage, environment, batching, std::move(engine),
                                        std::move(codecs), std::move(events));
}

}  // namespace runnel
