#pragma once

// What the tests of recipes with grids share: short runs of a recipe, and single instructions.

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "partition/zoo/zoo.h"
#include "tests/kernels/op_harness.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"

namespace runnel {

inline constexpr const char* kGridBackends[] = {"ref", "cpu", "cpu:portable"};

inline std::vector<float> ValuesOf(Tensor& tensor) {
  return {tensor.data(), tensor.data() + tensor.shape.elements()};
}

// A run of a few steps on the same samples, each at a level of its own.
struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<float>> parameters;
};

struct Training {
  ModelSpec model;
  std::string backend = "cpu";
  std::vector<int> cuts;
  const char* recipe = "sbm:8,8,8";
  std::vector<GridBits> levels = {{8, 8}};  // of the steps, in turns
  int count = 3;
  Steps steps = Steps::kApart;
  double loss_scale = 1;
  int micro_batches = 1;  // of a step
  int64_t batch = 4;
  Checks checks = Checks::kOn;
};

inline Trained TrainOnGrids(const Training& t) {
  Trained result;
  auto backend = *MakeBackend(t.backend, 1);
  int most_forward_bits = 0;
  for (const GridBits& level : t.levels)
    most_forward_bits = std::max(most_forward_bits, level.forward);
  auto pipeline = TestPipeline::Make(t.model, t.cuts, t.batch, backend.get(), 3, t.checks, t.steps,
                                     t.recipe, most_forward_bits);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return result;
  const CounterRandom random(3, RandomPurpose::kTest, 5, 0);
  std::vector<float> x(static_cast<size_t>(pipeline->stages[0]->program.input.elements()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.Normal(i));
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < t.batch; ++i) labels.push_back(static_cast<int32_t>(i % t.model.classes));
  StepContext context;
  context.run_seed = 3;
  context.step_labels = t.micro_batches * t.batch;
  context.learning_rate = 0.01;
  context.momentum = 0.9;
  context.loss_scale = t.loss_scale;
  for (int step = 0; step < t.count; ++step) {
    context.step = step;
    context.grid_bits = t.levels[static_cast<size_t>(step) % t.levels.size()];
    for (int i = 0; i < t.micro_batches; ++i) {
      context.accumulate = i > 0;
      const absl::Status status = pipeline->ForwardBackward(x.data(), labels.data(), context);
      EXPECT_TRUE(status.ok()) << status;
      context.sequence = context.sequence.next();
    }
    result.losses.push_back(pipeline->Loss() / static_cast<double>(t.batch));
    EXPECT_TRUE(pipeline->Update(context).ok());
  }
  result.parameters = pipeline->Tensors(Storage::kParameters);
  return result;
}

// `recipe` gives the same parameters whatever cut and wherever its steps are, of this model and of
// random ones, and not those of recipe `other`.
inline void ExpectCutsChangeNoByte(const char* name, const char* recipe, const char* other) {
  for (uint64_t seed = 0; seed <= 3; ++seed) {
    const ModelSpec model = seed == 0 ? *MakeModel(name) : RandomModel(seed);
    if (model.layer_count() < 2) continue;
    Training training = {.model = model, .recipe = recipe, .count = 2};
    const Trained whole = TrainOnGrids(training);
    if (seed == 0) {
      training.recipe = other;
      EXPECT_NE(TrainOnGrids(training).parameters, whole.parameters);
      training.recipe = recipe;
    }
    training.steps = Steps::kAlone;
    EXPECT_EQ(TrainOnGrids(training).parameters, whole.parameters) << seed;
    training.steps = Steps::kApart;
    training.cuts = {model.layer_count() / 2};
    EXPECT_EQ(TrainOnGrids(training).parameters, whole.parameters) << seed;
  }
}

// Backend cpu's first loss is that of ref but for `tolerance`, and falls below `share` of it within so
// many steps.
inline void ExpectBothBackendsLearn(const char* name, const char* recipe, int steps,
                                    double share = 0.8, double tolerance = 0.02) {
  const ModelSpec model = *MakeModel(name);
  const Trained on_ref =
      TrainOnGrids({.model = model, .backend = "ref", .recipe = recipe, .count = 1});
  const Trained on_cpu = TrainOnGrids({.model = model, .recipe = recipe, .count = steps});
  EXPECT_NEAR(on_cpu.losses[0], on_ref.losses[0], tolerance * on_ref.losses[0]);
  EXPECT_LT(on_cpu.losses.back(), share * on_cpu.losses[0]);
}

}  // namespace runnel
