#pragma once

// Backend cpu with and without fused steps, and the training that tests of both compare by bytes.

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "proto/base/random.h"
#include "tests/kernels/stage_harness.h"

namespace runnel {

// cap: the most that it may use of the processor's instructions.
inline std::unique_ptr<Backend> Cpu(const std::string& cap, int threads, bool fused) {
  auto backend = MakeCappedCpuBackend(cap, threads, fused);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return std::move(*backend);
}

inline void ExpectSame(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

struct TwoSteps {
  std::vector<std::vector<float>> parameters, momentum, statistics;
  std::vector<float> logits, eval_logits;
};

// Two steps of `micro_batches` each, then an evaluation.
inline TwoSteps TrainTwoSteps(const ModelSpec& model, std::vector<int> cuts, int64_t batch,
                              Backend* backend, uint64_t seed, int micro_batches = 2,
                              Steps steps = Steps::kApart, const char* recipe = "fp32") {
  TwoSteps result;
  auto pipeline =
      TestPipeline::Make(model, std::move(cuts), batch, backend, seed, Checks::kOn, steps, recipe);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return result;
  const CounterRandom random(seed, RandomPurpose::kTest, 5, 0);
  std::vector<float> x(static_cast<size_t>(pipeline->stages[0]->program.input.elements()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.Normal(i));
  std::vector<int32_t> labels(static_cast<size_t>(batch));
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<int32_t>(random.Below(i, static_cast<uint32_t>(model.classes)));
  }
  StepContext context;
  context.run_seed = seed;
  context.step_labels = micro_batches * batch;
  context.learning_rate = 0.05;
  context.momentum = 0.9;
  context.weight_decay = 0.01;
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < micro_batches; ++i) {
      context.accumulate = i > 0;
      const absl::Status status = pipeline->ForwardBackward(x.data(), labels.data(), context);
      EXPECT_TRUE(status.ok()) << status;
      context.sequence = context.sequence.next();
    }
    EXPECT_TRUE(pipeline->Update(context).ok());
  }
  result.logits = pipeline->logits;
  EXPECT_TRUE(pipeline->Forward(Part::kForwardEval, x.data(), labels.data(), context).ok());
  result.eval_logits = pipeline->logits;
  result.parameters = pipeline->Tensors(Storage::kParameters);
  result.momentum = pipeline->Tensors(Storage::kSlots);
  result.statistics = pipeline->Tensors(Storage::kStatistics);
  return result;
}

}  // namespace runnel
