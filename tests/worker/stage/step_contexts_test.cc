// What the instructions of a micro-batch are told: rates, bits and scales at its place in the run.

#include "worker/stage/step_contexts.h"

#include <optional>

#include "gtest/gtest.h"
#include "proto/base/training/dials/loss_scale.h"
#include "proto/base/training/training_change.h"
#include "worker/stage/stage_executor.h"

namespace runnel::step_contexts_test {
namespace {

StageExecutorOptions Options(const char* recipe) {
  StageExecutorOptions options;
  options.training.batch_size = 8;
  options.training.dataset_samples = 80;
  options.training.run_steps = 10;
  options.training.learning_rate = 0.5;
  options.training.loss_scale = "256";
  options.recipe = FindRecipe(recipe).value();
  return options;
}

MicroBatch Place(int64_t step) {
  MicroBatch place;
  place.step = step;
  place.samples = place.step_samples = 8;
  place.first_in_step = true;
  return place;
}

TEST(StepContexts, AChangeCountsFromItsStepOn) {
  StageExecutorOptions options = Options("fp16");
  const StepContexts contexts = StepContexts::Create(&options).value();
  EXPECT_EQ(contexts.At(Place(5), 1).loss_scale, 256);
  AddTrainingChange(ChangeOfLossScale(5, 64), options.changes);
  EXPECT_EQ(contexts.At(Place(4), 1).loss_scale, 256);
  EXPECT_EQ(contexts.At(Place(5), 1).loss_scale, 64);
}

TEST(StepContexts, OnlySmallGradientsAreScaled) {
  const StageExecutorOptions options = Options("fp32");
  EXPECT_EQ(StepContexts::Create(&options).value().At(Place(0), 1).loss_scale, 1);
}

TEST(StepContexts, TheLossIsDividedByAllLabelsOfTheStep) {
  const StageExecutorOptions options = Options("fp32");
  EXPECT_EQ(StepContexts::Create(&options).value().At(Place(0), 3).step_labels, 24);
}

TEST(StepContexts, AnEvaluationHasTheBitsOfTheLastMicroBatchButForACycles) {
  StageExecutorOptions options = Options("sbm:8,8,8");
  options.training.precision = "pfq:3,8/6,8";
  StepContexts contexts = StepContexts::Create(&options).value();
  const GridBits first = contexts.At(Place(0), 1).grid_bits;
  EXPECT_EQ(first, (GridBits{3, 6}));
  EXPECT_EQ(contexts.EvaluatedBits(std::nullopt), first);
  EXPECT_EQ(contexts.EvaluatedBits(GridBits{8, 8}), (GridBits{8, 8}));

  options.training.precision = "cpt:3,8/8";
  contexts = StepContexts::Create(&options).value();
  EXPECT_EQ(contexts.EvaluatedBits(GridBits{3, 8}), (GridBits{8, 8}));
}

TEST(StepContexts, BitsThatTheRecipeLacksAreRefused) {
  StageExecutorOptions options = Options("sbm:8,8,8");
  options.training.precision = "pfq:3,9/6,8";
  EXPECT_EQ(StepContexts::Create(&options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(StepContexts, AStageThatIsNotStaleNeitherLooksAheadNorAverages) {
  StageExecutorOptions options = Options("fp32");
  options.training.look_ahead = 0.5;
  options.training.aggregate_every = 2;
  options.cap = options.usual_cap = 3;
  const StepContexts contexts = StepContexts::Create(&options).value();
  EXPECT_EQ(contexts.LookAhead(2, 0.5), 0.5);
  EXPECT_EQ(contexts.LookAhead(0, 0.5), 0);
  EXPECT_EQ(contexts.VersionsToAverage(1), 3);
  EXPECT_EQ(contexts.VersionsToAverage(2), 0);
  options.cap = options.usual_cap = 1;
  EXPECT_EQ(contexts.VersionsToAverage(1), 0);
}

}  // namespace
}  // namespace runnel::step_contexts_test
