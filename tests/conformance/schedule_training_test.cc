// Real kernels under every schedule of the table that drains after each step, and under orders that
// no schedule has: the bytes of the plain loop.

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "central/records/weights_digest.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/recipe.h"
#include "partition/schedule.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/sim/simulated_pipeline.h"
#include "tests/worker/seeded_links.h"
#include "worker/stage/plain_loop.h"
#include "worker/stage/stage_executor.h"

namespace runnel::schedule_training_test {
namespace {

constexpr int64_t kMicroBatches = 4;
constexpr int64_t kSteps = 3;

// LeNet is plain, the HAR CNN has dropout, MobileNetV2 batch norm and residual blocks; niti has
// integers only.
struct Case {
  const char* model;
  const char* recipe;
  std::string optimizer = "sgd";
  double label_smoothing = 0;
  double ema = 0;
  double clip_norm = 0;
  std::string swa = "off";
};

// Of the weights, and of their average where there is one.
std::string DigestsOf(ModelState state) {
  const std::string weights = WeightsSha256(state);
  TakeAverages(state);
  return absl::StrCat(weights, " ", WeightsSha256(state));
}

std::vector<Case> Cases() {
  std::vector<Case> cases = {{"har_cnn", "fp32", "sgd", 0.1, 0.5},
                             {"mobilenet_v2", "fp32", "sgd", 0, 0, 0.5, "1"},
                             {"lenet", "niti"}};
  for (const Optimizer& optimizer : Optimizers())
    cases.push_back({"lenet", "fp32", std::string(optimizer.choice.name)});
  return cases;
}

class Trainer {
 public:
  Trainer(const Case& c, const std::string& backend)
      : model_(MakeModel(c.model).value()),
        recipe_(FindRecipe(c.recipe).value()),
        backend_(MakeBackend(backend, 1).value()) {
    training_.dataset_samples = 100;
    training_.batch_size = 9;  // micro-batches of 3, 2, 2 and 2
    training_.micro_batches = kMicroBatches;
    training_.min_samples = 2;
    training_.eval_batch_size = 2;
    training_.learning_rate = 1e-4;  // batch norm over two samples diverges soon
    training_.optimizer = c.optimizer;
    training_.label_smoothing = c.label_smoothing;
    training_.ema = c.ema;
    training_.clip_norm = c.clip_norm;
    training_.swa = c.swa;
    batching_ = MakeBatching(training_).value();
    state_ = InitialState(model_, training_.seed, FormatOf(*recipe_->family, training_)).value();
  }

  int layers() const { return model_.layer_count(); }

  std::string PlainLoop() {
    const auto executor = MakeExecutor(0, layers() - 1, /*one_in_flight=*/true, {});
    for (int64_t s = 0; s < last(); ++s) {
      const MicroBatch place = batching_.Locate(Sequence(s));
      const auto result = TrainMicroBatch(*executor, place, Samples(place), Labels(place));
      EXPECT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(result.ok() && std::isfinite(result->loss_sum));
    }
    return DigestsOf(executor->ExportState().value());
  }

  // The layers cut evenly.
  std::string Pipeline(const std::vector<StageOrder>& orders) {
    const int stages = static_cast<int>(orders.size());
    SimulatedPipelineOptions options{
        .batching = batching_, .barriers = {last()}, .clips = training_.clip_norm > 0};
    options.plan.generation = Generation(1);
    options.plan.drains_each_step = true;
    for (int i = 0; i < stages; ++i) {
      options.plan.stages.push_back({{Seat{DeviceId(i)}},
                                     layers() * i / stages,
                                     layers() * (i + 1) / stages - 1,
                                     orders[i].cap,
                                     orders[i].deferred_weight_gradients});
    }
    const CodecSchedule codec(LosslessCodec(recipe_->numbers));
    options.plan.links.assign(stages - 1, {codec, codec});
    std::vector<std::unique_ptr<StageExecutor>> executors;
    std::vector<std::unique_ptr<LinkCodecs>> codecs;
    for (int i = 0; i < stages; ++i) {
      const StagePlan& stage = options.plan.stages[i];
      executors.push_back(
          MakeExecutor(stage.first_layer, stage.last_layer, orders[i] == StageOrder(), orders[i]));
      codecs.push_back(SeededLinks(options.plan, i, training_.seed, recipe_->numbers).value());
      options.compute.push_back(executors.back().get());
      options.codecs.push_back(codecs.back().get());
    }
    options.output_shape = [&](int stage, int64_t samples) {
      return executors[stage]->output_shape(samples);
    };
    options.samples = [this](const MicroBatch& place) { return Samples(place); };
    options.labels = [this](const MicroBatch& place) { return Labels(place); };
    const auto result = RunSimulated(options);
    EXPECT_TRUE(result.ok()) << result.status();
    ModelState state;
    for (const auto& executor : executors) Merge(executor->ExportState().value(), state);
    return DigestsOf(std::move(state));
  }

 private:
  int64_t last() const { return batching_.FirstSequence(kSteps).value(); }

  std::unique_ptr<StageExecutor> MakeExecutor(int first, int last, bool one_in_flight,
                                              const StageOrder& order) {
    StageExecutorOptions options;
    options.model = model_;
    options.first_layer = first;
    options.last_layer = last;
    options.training = training_;
    options.recipe = recipe_;
    options.one_in_flight = one_in_flight;
    options.defers_weight_gradients = order.deferred_weight_gradients > 0;
    auto executor = StageExecutor::Create(options, backend_.get(), &pool_);
    EXPECT_TRUE(executor.ok()) << executor.status();
    EXPECT_TRUE((*executor)->ImportState(Slice(state_, first, last)).ok());
    return *std::move(executor);
  }

  Payload Samples(const MicroBatch& place) {
    const int64_t elements = place.samples * model_.input.elements();
    Payload payload = pool_.Allocate(static_cast<size_t>(elements) * sizeof(float));
    auto* values = reinterpret_cast<float*>(payload.mutable_bytes().data());
    const CounterRandom random(7, RandomPurpose::kTest, 0,
                               static_cast<uint64_t>(place.sequence.value()));
    for (int64_t e = 0; e < elements; ++e)
      values[e] = static_cast<float>(random.Uniform(static_cast<uint64_t>(e)));
    return payload;
  }

  Payload Labels(const MicroBatch& place) {
    Payload payload = pool_.Allocate(static_cast<size_t>(place.samples) * sizeof(int32_t));
    auto* values = reinterpret_cast<int32_t*>(payload.mutable_bytes().data());
    for (int64_t n = 0; n < place.samples; ++n)
      values[n] = static_cast<int32_t>((place.sequence.value() + 3 * n) % model_.classes);
    return payload;
  }

  const ModelSpec model_;
  const Recipe* const recipe_;
  const std::unique_ptr<Backend> backend_;
  BufferPool pool_;
  TrainingSettings training_;
  Batching batching_ = Batching::Create(1, 1, 1, 1).value();
  ModelState state_;
};

class ScheduleTraining : public ::testing::TestWithParam<Case> {};

TEST_P(ScheduleTraining, EverySynchronousScheduleEqualsThePlainLoopOnOneToFourStages) {
  Trainer trainer(GetParam(), "cpu");
  const std::string plain = trainer.PlainLoop();
  for (const ScheduleRow& row : BuiltinSchedules()) {
    if (!row.drains_each_step) continue;
    for (int stages = 1; stages <= std::min(4, trainer.layers()); ++stages) {
      EXPECT_EQ(trainer.Pipeline(StageOrders(row.deferred, row.caps(stages, kMicroBatches))), plain)
          << row.name << " on " << stages << " stages";
    }
  }
}

TEST_P(ScheduleTraining, AnyOrderEqualsThePlainLoop) {
  Trainer trainer(GetParam(), "cpu");
  const std::string plain = trainer.PlainLoop();
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    std::vector<StageOrder> orders(1 + seed % 4);
    int64_t cap = 1;
    for (auto order = orders.rbegin(); order != orders.rend(); ++order) {
      *order = {cap, static_cast<int64_t>(random() % 5)};
      cap += static_cast<int64_t>(random() % 3);
    }
    EXPECT_EQ(trainer.Pipeline(orders), plain);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ScheduleTraining, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           return absl::StrCat(info.param.model, "_", info.param.recipe, "_",
                                               info.param.optimizer);
                         });

}  // namespace
}  // namespace runnel::schedule_training_test
