#include "worker/stage/step_contexts.h"

#include <algorithm>

#include "proto/base/status_macros.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "proto/base/training/dials/loss_scale.h"
#include "worker/stage/stage_executor.h"

namespace runnel {

absl::StatusOr<StepContexts> StepContexts::Create(const StageExecutorOptions* options) {
  const TrainingSettings& training = options->training;
  RUNNEL_ASSIGN_OR_RETURN(OptimizerChoice optimizer, ParseOptimizer(training.optimizer));
  RUNNEL_ASSIGN_OR_RETURN(PrecisionSetting precision, ParsePrecision(training.precision));
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName recipe, ParseRecipeName(options->recipe->name));
  RUNNEL_RETURN_IF_ERROR(CheckPrecisionOf(precision, recipe));
  return StepContexts(options, std::move(optimizer), std::move(precision));
}

StepContexts::StepContexts(const StageExecutorOptions* options, OptimizerChoice optimizer,
                           PrecisionSetting precision)
    : options_(options),
      scales_loss_(
          FormatOf(*options->recipe->family, options->training, options->model).scales_loss()),
      optimizer_(std::move(optimizer)),
      precision_(std::move(precision)) {}

StepContext StepContexts::At(const MicroBatch& place, int64_t labels_per_sample) const {
  const TrainingSettings& training = options_->training;
  StepContext context;
  context.run_seed = training.seed;
  context.sequence = place.sequence;
  context.step = place.step;
  context.step_labels = place.step_samples * labels_per_sample;
  context.label_smoothing = training.label_smoothing;
  context.accumulate = !place.first_in_step;
  context.learning_rate =
      StepRate(training, place.epoch, place.step, options_->cap, options_->usual_cap);
  context.momentum = training.momentum;
  context.weight_decay = training.weight_decay;
  std::copy(optimizer_.parameters.begin(), optimizer_.parameters.end(),
            context.optimizer_parameters.begin());
  context.optimizer_parameters.back() = static_cast<double>(options_->delay);
  context.gradient_bits = GradientBitsAt(training, options_->changes, place.epoch, place.step);
  context.grid_bits =
      PrecisionAt(precision_, options_->changes, training.run_steps, place.epoch, place.step);
  if (scales_loss_)
    context.loss_scale = static_cast<double>(LossScaleAt(training, options_->changes, place.step));
  return context;
}

// A cycle's largest bits, whatever the last step had.
GridBits StepContexts::EvaluatedBits(const std::optional<GridBits>& trained) const {
  const bool cycles = precision_.kind == PrecisionSetting::Kind::kCycle;
  if (trained.has_value() && !cycles) return *trained;
  return LastPrecision(precision_, options_->changes);
}

double StepContexts::LookAhead(int64_t steps_between, double learning_rate) const {
  return LookAheadShare(options_->training, options_->cap, options_->usual_cap) *
         static_cast<double>(steps_between) * learning_rate;
}

int64_t StepContexts::VersionsToAverage(int64_t step) const {
  const int64_t every = options_->training.aggregate_every;
  return every == 0 || (step + 1) % every != 0 || options_->usual_cap < 2 ? 0 : options_->usual_cap;
}

}  // namespace runnel
