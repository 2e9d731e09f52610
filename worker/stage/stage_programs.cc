#include "worker/stage/stage_programs.h"

#include "proto/base/model/side_values.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/dials/precision.h"
#include "proto/base/training/optimizer.h"
#include "proto/base/training/weight_average.h"

namespace runnel {

absl::StatusOr<StageArithmetic> ArithmeticOf(const TrainingSettings& training,
                                             const ModelSpec& model, const Recipe& recipe) {
  StageArithmetic made = {recipe, {}};
  const bool has_target = HasCostTarget(training), carries_state = CarriesState(model);
  if (has_target || carries_state)
    made.recipe.numbers.beside = SideValuesOf(has_target, carries_state);
  RUNNEL_ASSIGN_OR_RETURN(const OptimizerChoice choice, ParseOptimizer(training.optimizer));
  RUNNEL_ASSIGN_OR_RETURN(const PrecisionSetting precision, ParsePrecision(training.precision));
  StagePrograms& programs = made.programs;
  programs.accumulates = training.micro_batches > 1;
  programs.optimizer = choice.optimizer;
  programs.averages_weights = AveragesWeights(training);
  programs.most_forward_bits = MostForwardBits(precision);
  // Clipping needs the whole gradient before the first step.
  programs.keeps_gradients = training.clip_norm > 0 || HasGates(model);
  RUNNEL_ASSIGN_OR_RETURN(programs.rescale, ParseRescale(training.rescale));
  RUNNEL_ASSIGN_OR_RETURN(programs.batch_split, ParseBatchSplit(training.batch_split));
  return made;
}

}  // namespace runnel
