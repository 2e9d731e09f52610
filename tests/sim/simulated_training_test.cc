// Real kernels over the simulated transport come to the bytes of the single-process replay, with
// broken connections and lost stages or without.

#include "central/data/batch_source.h"
#include "central/data/dataset.h"
#include "central/records/weights_digest.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/recipe.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/base/codecs.h"
#include "tests/sim/simulated_pipeline.h"
#include "tests/worker/seeded_links.h"
#include "tests/worker/stage/state/staleness_replay.h"
#include "worker/stage/stage_executor.h"

namespace runnel::simulated_training_test {
namespace {

class SimulatedTraining : public ::testing::TestWithParam<std::string> {};

// Bits that change while micro-batches of the epoch before are still in flight: 5 is no multiple of
// an epoch's steps.
constexpr char kScheduled[] = "0:mbq:2,1:mbq:3,2:identity";
constexpr char kKeepsSamples[] = "aqsgd:2";

std::string Backward(const std::string& forward) {
  if (forward == kScheduled) return "0:stochastic:8,2:stochastic:4";
  if (forward == "eden:2") return "hadamard_ef:2";
  if (forward == "lowrank:2") return "topk8:0.1";
  return forward == "identity" ? "identity" : "stochastic:8";
}

// Real executors and codecs, made from the last cut.
class Stages {
 public:
  // All are borrowed.
  Stages(const StalenessReplayOptions& replay, Backend* backend, BufferPool* pool,
         SimulatedPipelineOptions* options)
      : replay_(replay), backend_(backend), pool_(pool), options_(options), cut_(replay.state) {
    Make();
  }

  void Make() {
    executors_.clear();
    codecs_.clear();
    options_->compute.clear();
    options_->codecs.clear();
    for (int i = 0; i < static_cast<int>(replay_.plan.stages.size()); ++i) {
      StageExecutorOptions stage;
      stage.model = replay_.model;
      stage.first_layer = replay_.plan.stages[i].first_layer;
      stage.last_layer = replay_.plan.stages[i].last_layer;
      stage.training = replay_.training;
      stage.recipe = FindRecipe("fp32").value();
      executors_.push_back(StageExecutor::Create(stage, backend_, pool_).value());
      const ModelState state = Slice(cut_, stage.first_layer, stage.last_layer);
      EXPECT_TRUE(executors_.back()->ImportState(state).ok());
      codecs_.push_back(
          SeededLinks(replay_.plan, i, replay_.training.seed, {}, replay_.training.dataset_samples)
              .value());
      EXPECT_TRUE(codecs_.back()->RestoreStates(state.encoders).ok());
      options_->compute.push_back(executors_.back().get());
      options_->codecs.push_back(codecs_.back().get());
    }
  }

  const ModelState& Keep() {
    for (size_t i = 0; i < executors_.size(); ++i) {
      ModelState part = executors_[i]->ExportState().value();
      part.encoders = codecs_[i]->SaveStates();
      Merge(part, cut_);
    }
    return cut_;
  }

  const StageExecutor& executor(int stage) const { return *executors_[static_cast<size_t>(stage)]; }

 private:
  const StalenessReplayOptions& replay_;
  Backend* backend_;
  BufferPool* pool_;
  SimulatedPipelineOptions* options_;
  ModelState cut_;
  std::vector<std::unique_ptr<StageExecutor>> executors_;
  std::vector<std::unique_ptr<LinkCodecs>> codecs_;
};

TEST_P(SimulatedTraining, EqualsTheReplay) {
  StalenessReplayOptions replay;
  replay.model = MakeModel("lenet").value();
  replay.training.dataset_samples = 6000;
  replay.training.batch_size = 4;
  replay.training.eval_batch_size = 4;
  replay.plan.generation = Generation(1);
  for (int i = 0; i < 3; ++i)
    replay.plan.stages.push_back({{Seat{DeviceId(i)}}, 2 * i, 2 * i + 1, 5 - 2 * i});
  const bool is_about_epochs = GetParam() == kScheduled || GetParam() == kKeepsSamples;
  if (is_about_epochs) replay.training.dataset_samples = 16;  // epochs of four steps
  replay.plan.links.assign(2, {Codecs(GetParam()), Codecs(Backward(GetParam()))});
  replay.barriers = {5, 12};
  replay.state = InitialState(replay.model, replay.training.seed).value();
  const DatasetSplits data = FindDataset("synthetic_digits").value()->load({}).value();
  BatchSource source(*data.train, replay.training.seed);
  replay.fill = [&source](const MicroBatch& place, absl::Span<float> samples,
                          absl::Span<int32_t> labels) { source.Fill(place, samples, labels); };
  const std::unique_ptr<Backend> backend = MakeBackend("ref", 1).value();
  const absl::StatusOr<ModelState> expected = ReplayStaleness(replay, backend.get());
  ASSERT_TRUE(expected.ok()) << expected.status();

  struct Faults {
    int64_t break_every_ns = 0;
    int64_t lose_every_ns = 0;
  };
  for (const Faults& faults : {Faults{}, Faults{20'000'000, 0}, Faults{0, 60'000'000}}) {
    BufferPool pool;
    SimulatedPipelineOptions options{.plan = replay.plan,
                                     .batching = MakeBatching(replay.training).value()};
    options.barriers = replay.barriers;
    options.break_every_ns = faults.break_every_ns;
    options.lose_every_ns = faults.lose_every_ns;
    options.shaping.delay_ms = 2;
    Stages stages(replay, backend.get(), &pool, &options);
    options.keep = [&] { stages.Keep(); };
    options.go_back = [&] { stages.Make(); };
    options.output_shape = [&](int stage, int64_t samples) {
      return stages.executor(stage).output_shape(samples);
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
    EXPECT_EQ(result->breaks > 0, faults.break_every_ns > 0);
    EXPECT_EQ(result->losses > 0, faults.lose_every_ns > 0);
    EXPECT_EQ(WeightsSha256(stages.Keep()), WeightsSha256(*expected));
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, SimulatedTraining,
                         ::testing::Values("identity", kKeepsSamples, "auto:2", "tile_ans:4",
                                           "mbq:2", "eden:2", "lowrank:2", "uniform:3",
                                           "amsgrad_mbq:2", kScheduled),
                         [](const auto& info) {
                           return info.param == kScheduled
                                      ? "scheduled"
                                      : info.param.substr(0, info.param.find(':'));
                         });

}  // namespace
}  // namespace runnel::simulated_training_test
