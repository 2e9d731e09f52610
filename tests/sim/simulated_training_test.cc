// Real kernels over the simulated transport come to the bytes of the single-process replay, broken
// connections or not.

#include "central/data/batch_source.h"
#include "central/data/dataset.h"
#include "central/records/weights_digest.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/recipe.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/base/codecs.h"
#include "tests/sim/simulated_pipeline.h"
#include "tests/worker/staleness_replay.h"
#include "worker/stage_executor.h"

namespace runnel {
namespace {

class SimulatedTraining : public ::testing::TestWithParam<std::string> {};

// Bits that change while micro-batches of the epoch before are still in flight: 5 is no multiple of
// an epoch's steps.
constexpr char kScheduled[] = "0:mbq:2,1:mbq:3,2:identity";

std::string Backward(const std::string& forward) {
  if (forward == kScheduled) return "0:stochastic:8,2:stochastic:4";
  return forward == "identity" ? "identity" : "stochastic:8";
}

TEST_P(SimulatedTraining, EqualsTheReplay) {
  StalenessReplayOptions replay;
  replay.model = MakeModel("lenet").value();
  replay.training.dataset_samples = 6000;
  replay.training.batch_size = 4;
  replay.training.eval_batch_size = 4;
  replay.plan.generation = Generation(1);
  for (int i = 0; i < 3; ++i)
    replay.plan.stages.push_back({DeviceId(i), 2 * i, 2 * i + 1, 5 - 2 * i});
  if (GetParam() == kScheduled) replay.training.dataset_samples = 16;  // epochs of four steps
  replay.plan.links.assign(2, {Codecs(GetParam()), Codecs(Backward(GetParam()))});
  replay.barriers = {5, 12};
  replay.state = InitialState(replay.model, replay.training.seed).value();
  const DatasetSplits data = FindDataset("synthetic_digits").value()->load("", 1).value();
  BatchSource source(*data.train, replay.training.seed);
  replay.fill = [&source](const MicroBatch& place, absl::Span<float> samples,
                          absl::Span<int32_t> labels) { source.Fill(place, samples, labels); };
  const std::unique_ptr<Backend> backend = MakeBackend("ref", 1).value();
  const absl::StatusOr<ModelState> expected = ReplayStaleness(replay, backend.get());
  ASSERT_TRUE(expected.ok()) << expected.status();

  for (int64_t break_every_ns : {int64_t{0}, int64_t{20'000'000}}) {
    BufferPool pool;
    std::vector<std::unique_ptr<StageExecutor>> executors;
    std::vector<std::unique_ptr<LinkCodecs>> codecs;
    SimulatedPipelineOptions options{.plan = replay.plan,
                                     .batching = MakeBatching(replay.training).value()};
    options.barriers = replay.barriers;
    options.break_every_ns = break_every_ns;
    options.shaping.delay_ms = 2;
    for (int i = 0; i < 3; ++i) {
      StageExecutorOptions stage;
      stage.model = replay.model;
      stage.first_layer = replay.plan.stages[i].first_layer;
      stage.last_layer = replay.plan.stages[i].last_layer;
      stage.training = replay.training;
      stage.recipe = FindRecipe("fp32").value();
      executors.push_back(StageExecutor::Create(stage, backend.get(), &pool).value());
      ASSERT_TRUE(executors.back()
                      ->ImportState(Slice(replay.state, stage.first_layer, stage.last_layer))
                      .ok());
      codecs.push_back(LinkCodecs::Create(replay.plan, i, replay.training.seed).value());
      options.compute.push_back(executors.back().get());
      options.codecs.push_back(codecs.back().get());
    }
    options.output_shape = [&](int stage, int64_t samples) {
      return executors[stage]->output_shape(samples);
    };
    options.samples = [&](const MicroBatch& place) {
      Payload payload = pool.Allocate(static_cast<size_t>(place.samples) * 784 * sizeof(float));
      float* values = reinterpret_cast<float*>(payload.mutable_bytes().data());
      source.Fill(place, absl::MakeSpan(values, place.samples * 784), {});
      return payload;
    };
    options.labels = [&](const MicroBatch& place) {
      Payload payload = pool.Allocate(static_cast<size_t>(place.samples) * sizeof(int32_t));
      int32_t* values = reinterpret_cast<int32_t*>(payload.mutable_bytes().data());
      source.Fill(place, {}, absl::MakeSpan(values, place.samples));
      return payload;
    };
    const auto result = RunSimulated(options);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->breaks > 0, break_every_ns > 0);
    ModelState state;
    for (const auto& executor : executors) Merge(executor->ExportState().value(), state);
    EXPECT_EQ(WeightsSha256(state), WeightsSha256(*expected));
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, SimulatedTraining,
                         ::testing::Values("identity", "mbq:2", "hadamard_ef:2", "uniform:3",
                                           "amsgrad_mbq:2", kScheduled),
                         [](const auto& info) {
                           return info.param == kScheduled
                                      ? "scheduled"
                                      : info.param.substr(0, info.param.find(':'));
                         });

}  // namespace
}  // namespace runnel
