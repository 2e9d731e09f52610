#pragma once

// Small models of residual blocks, and a stage of them that a test drives as its neighbours would.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/ref/ref_backend.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "proto/base/training/batching.h"
#include "worker/stage/stage_executor.h"

namespace runnel {

constexpr int64_t kGatedSamples = 3;

inline TrainingSettings GatedSettings(const std::string& target) {
  TrainingSettings training;
  training.batch_size = kGatedSamples;
  training.dataset_samples = 20 * kGatedSamples;
  training.cost_target = target;
  return training;
}

// A stem on {4, side, side}, blocks of two convolutions with a gate before each (as `--gates` has them), and a
// head of three classes.
inline ModelSpec GatedBlocks(int blocks, int64_t side, const std::string& gates) {
  const auto conv = [](int32_t input) {
    return OpSpec{.kind = OpKind::kConv,
                  .inputs = {input},
                  .out_channels = 4,
                  .kernel = {3, 3},
                  .padding = {1, 1}};
  };
  ModelSpec model{"blocks", {4, side, side}, 3, {}};
  model.layers.push_back({"stem", {conv(0), {.kind = OpKind::kRelu, .inputs = {1}}}});
  for (int i = 0; i < blocks; ++i) {
    model.layers.push_back({"block" + std::to_string(i),
                            {conv(0),
                             {.kind = OpKind::kRelu, .inputs = {1}},
                             conv(2),
                             {.kind = OpKind::kAdd, .inputs = {3, 0}}}});
  }
  model.layers.push_back({"head",
                          {{.kind = OpKind::kGlobalAvgPool, .inputs = {0}},
                           {.kind = OpKind::kLinear, .inputs = {1}, .out_channels = 3}}});
  return AddGates(std::move(model), gates).value();
}

// Layers first..last on `ref`, of which nothing was trained.
class LoneStage {
 public:
  struct Options {
    std::string recipe = "sbm:8,8,8";
    std::string cost_target;  // as TrainingSettings
    std::vector<TrainingChange> changes;
  };
  LoneStage(ModelSpec model, int first, int last, const Options& options) {
    StageExecutorOptions of_stage;
    of_stage.model = std::move(model);
    of_stage.first_layer = first;
    of_stage.last_layer = last;
    of_stage.training = GatedSettings(options.cost_target);
    of_stage.changes = options.changes;
    of_stage.recipe = FindRecipe(options.recipe).value();
    backend_ = MakeRefBackend(1).value();
    executor_ = StageExecutor::Create(of_stage, backend_.get(), &pool_).value();
    EXPECT_TRUE(executor_->DrawState().ok());
  }
  StageExecutor* operator->() { return executor_.get(); }
  BufferPool& pool() { return pool_; }

 private:
  BufferPool pool_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<StageExecutor> executor_;
};

}  // namespace runnel
