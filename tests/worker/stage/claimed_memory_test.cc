// What a plan counts for a stage is no less than what the stage allocates, with clipping, averaged
// weights and gates too.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "partition/pipeline_model.h"
#include "partition/plan_builder.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "proto/base/training/dials/precision.h"
#include "proto/base/training/recipe_family.h"
#include "worker/measure/random_tensors.h"
#include "worker/stage/stage_executor.h"

namespace runnel::claimed_memory_test {
namespace {

constexpr int64_t kSamples = 8;

struct Case {
  std::string model = "resnet8";
  std::string gates = "";
  double clip_norm = 0;
  double ema = 0;
  int64_t cap = 1;
  int first_layer = 0;
  std::string optimizer = "sgd";
  std::string recipe = "fp32";
  bool recompute = false;
  std::string precision = TrainingSettings().precision;
};

std::string NameOf(const Case& c) {
  return absl::StrCat(c.recipe, ", ", c.model, " from layer ", c.first_layer, ", cap ", c.cap, ", ",
                      c.optimizer, c.clip_norm > 0 ? ", clipped" : "",
                      c.ema > 0 ? ", averaged" : "", c.gates.empty() ? "" : ", gates ", c.gates,
                      c.recompute ? ", made again" : "", ", ", c.precision);
}

StageExecutorOptions OptionsOf(const Case& c) {
  StageExecutorOptions options;
  options.model = MakeModel(c.model).value();
  if (!c.gates.empty()) options.model = AddGates(options.model, c.gates).value();
  for (LayerSpec& layer : options.model.layers) layer.recompute = c.recompute;
  options.first_layer = c.first_layer;
  options.last_layer = options.model.layer_count() - 1;
  options.training.micro_batches = c.cap;
  options.training.batch_size = c.cap * kSamples;
  options.training.dataset_samples = 8 * c.cap * kSamples;
  options.training.eval_batch_size = kSamples;
  options.training.clip_norm = c.clip_norm;
  options.training.ema = c.ema;
  options.training.optimizer = c.optimizer;
  options.training.precision = c.precision;
  options.recipe = FindRecipe(c.recipe).value();
  options.one_in_flight = c.cap == 1;
  options.cap = options.usual_cap = c.cap;
  return options;
}

// What a plan counts of this stage alone, without what is beside the backend's memory.
int64_t ClaimedBytes(const StageExecutorOptions& options) {
  PlanRequest request;
  request.model = &options.model;
  request.schedule = FindSchedule("sync_1f1b").value();
  request.devices = {DeviceId(0)};
  const RecipeFamily& family = *options.recipe->family;
  request.format = FormatOf(family, options.training, options.model);
  request.recipe_memory = MemoryOf(ParseRecipeName(options.recipe->name).value(),
                                   ParsePrecision(options.training.precision).value());
  request.micro_batches = options.training.micro_batches;
  request.micro_batch_size = kSamples;
  const auto none = [](const Shape&) { return Bytes(0); };
  request.codecs.encoded_forward = request.codecs.encoded_backward = none;
  const PipelineModel model = MakePipelineModel(request).value();
  StageHold hold = HoldOf(model, {options.first_layer, options.last_layer});
  hold.input_bytes = 0;
  return StageMemoryBytes(model, hold, {options.cap, 0}, options.usual_cap);
}

// Of a step whose micro-batches are all in flight before the first backward.
int64_t AllocatedBytes(const StageExecutorOptions& options) {
  const std::unique_ptr<Backend> backend = MakeBackend("cpu", 1).value();
  BufferPool pool;
  const Batching batching = MakeBatching(options.training).value();
  const auto executor = *StageExecutor::Create(options, backend.get(), &pool);
  EXPECT_TRUE(executor->DrawState().ok());
  const Shape shape = executor->input_shape(kSamples);
  const auto input = [&] {
    return options.first_layer == 0
               ? RandomTensor(pool, shape.elements(), 1)
               : RandomBoundary(pool, executor->numbers(), Direction::kForward, shape, 1);
  };
  for (int64_t i = 0; i < options.cap; ++i) {
    const auto forward = executor->Forward(batching.Locate(Sequence(i)), input(),
                                           RandomLabels(pool, kSamples, options.model.classes, 1));
    EXPECT_TRUE(forward.ok()) << forward.status();
  }
  for (int64_t i = 0; i < options.cap; ++i) {
    const MicroBatch place = batching.Locate(Sequence(i));
    EXPECT_TRUE(executor->InputGradient(place, Payload()).ok());
    EXPECT_TRUE(executor->WeightGradient(place, i + 1 == options.cap).ok());
  }
  EXPECT_TRUE(
      executor->Evaluate(kSamples, input(), RandomLabels(pool, kSamples, options.model.classes, 1))
          .ok());
  return executor->memory_bytes();
}

// Sums of gradients inside a stage are in no claim: they are less than what it counts twice, but for
// stages of linear layers alone.
constexpr double kSlack = 1.02;

void ExpectCovered(Case one) {
  for (const int64_t cap : {1, 3}) {
    for (const int first : {0, 2}) {
      one.cap = cap;
      one.first_layer = first;
      const StageExecutorOptions options = OptionsOf(one);
      const auto claimed = static_cast<double>(ClaimedBytes(options)),
                 allocated = static_cast<double>(AllocatedBytes(options));
      EXPECT_GE(kSlack * claimed, allocated) << NameOf(one);
      EXPECT_LT(claimed, 3 * allocated) << NameOf(one);
    }
  }
}

TEST(ClaimedMemory, CoversClippingAndAverages) {
  ExpectCovered({.model = "mobilenet_v2", .clip_norm = 1, .ema = 0.9, .optimizer = "adamw"});
  for (const char* model : {"lenet", "resnet8"}) {
    for (const char* optimizer : {"sgd", "adamw"}) {
      ExpectCovered({.model = model, .optimizer = optimizer});
      ExpectCovered({.model = model, .clip_norm = 1, .optimizer = optimizer});
      ExpectCovered({.model = model, .ema = 0.9, .optimizer = optimizer});
      ExpectCovered({.model = model, .clip_norm = 1, .ema = 0.9, .optimizer = optimizer});
    }
  }
}

TEST(ClaimedMemory, CoversGates) {
  for (const char* gates :
       {"ff:0,32/32,32@hold:0.5", "ff:0,32/32,32@beta:0.001", "lstm:0,32/32,32@beta:0.001"}) {
    ExpectCovered({.model = "resnet8", .gates = gates});
    ExpectCovered({.model = "resnet20", .gates = gates, .clip_norm = 1, .ema = 0.9});
  }
}

// Products of codes: codes are kept, and an option's values lie apart from the next one's.
TEST(ClaimedMemory, CoversGatesOfCodes) {
  for (const char* gates : {"ff:0,8/8,8@hold:0.5", "ff:0,3,4,6/6,6,8,12", "lstm:0,4,8/8,8,8"}) {
    ExpectCovered({.model = "resnet8", .gates = gates, .recipe = "sbm:8,8,8"});
    ExpectCovered(
        {.model = "resnet20", .gates = gates, .clip_norm = 1, .ema = 0.9, .recipe = "sbm:8,8,8"});
  }
  ExpectCovered({.model = "resnet8", .recipe = "sbm:8,8,8"});
}

// Codes stand for what enters a layer that is made again.
TEST(ClaimedMemory, CoversLayersThatAreMadeAgain) {
  for (const char* recipe : {"fp32", "sbm:8,8,8", "sbm:4,4,6", "ui8", "octo"}) {
    for (const char* model : {"lenet", "resnet8", "resnet20"}) {
      ExpectCovered({.model = model, .recipe = recipe, .recompute = true});
    }
  }
  ExpectCovered({.model = "mobilenet_v2", .recompute = true});
}

// Codes of 4 bits lie two a byte, but not where a level has more.
TEST(ClaimedMemory, CoversPairsOfCodes) {
  for (const char* model : {"lenet", "resnet8", "mobilenet_v2"}) {
    for (const char* precision : {"recipe", "fixed:3/6", "pfq:3,4,8/6,6,8"})
      ExpectCovered({.model = model, .recipe = "sbm:4,4,6", .precision = precision});
  }
  Case one = {.model = "resnet8", .cap = 8, .recipe = "sbm:4,4,6", .recompute = true};
  const int64_t pairs = ClaimedBytes(OptionsOf(one)), kept = AllocatedBytes(OptionsOf(one));
  one.precision = "fixed:8/8";
  EXPECT_LT(pairs, ClaimedBytes(OptionsOf(one)));
  EXPECT_LT(kept, AllocatedBytes(OptionsOf(one)));
}

// Values on grids beside those that they are made of, copies of weights, gradients that are corrected.
TEST(ClaimedMemory, CoversEveryRecipe) {
  for (const RecipeFamily& family : RecipeFamilies()) {
    if (IsScaled(family.format.activation)) continue;  // of integers alone
    const std::string bits = family.operands == nullptr || family.parameters.empty() ? ""
                             : family.name == "mls"                                  ? ":2,4"
                             : family.parameters[0] == '|'                           ? ""
                                                                                     : ":8,8,8";
    const std::string name = absl::StrCat(family.name, bits);
    for (const char* model : {"lenet", "resnet8"}) {
      if (family.name == "wageubn" && model == std::string("lenet")) continue;  // batch norm
      ExpectCovered({.model = model, .recipe = name});
    }
  }
}

// An evaluation before training packs weights once and keeps them until they change.
TEST(AllocatedMemory, HasThePackedWeightsThatEvaluationsKeep) {
  const StageExecutorOptions options = OptionsOf({.model = "lenet"});
  const std::unique_ptr<Backend> backend = MakeBackend("cpu", 1).value();
  BufferPool pool;
  const auto make = [&] {
    auto executor = *StageExecutor::Create(options, backend.get(), &pool);
    EXPECT_TRUE(executor->DrawState().ok());
    return executor;
  };
  const auto executor = make(), trained = make();
  const auto labels = [&] { return RandomLabels(pool, kSamples, options.model.classes, 1); };
  const auto input = [&] {
    return RandomTensor(pool, executor->input_shape(kSamples).elements(), 1);
  };
  const int64_t before = executor->memory_bytes();
  ASSERT_TRUE(executor->Evaluate(kSamples, input(), labels()).ok());
  const int64_t kept = executor->memory_bytes() - before;
  int64_t weights = 0;  // of the convolutions
  const std::vector<LayerInfo> infos = InferShapes(options.model, 1).value();
  for (const LayerInfo& info : infos) {
    for (const StateTensorSpec& spec : info.state)
      weights +=
          spec.role == TensorRole::kWeight && spec.shape.rank() > 2 ? 4 * spec.shape.elements() : 0;
  }
  EXPECT_GE(kept, weights);
  ASSERT_TRUE(executor->Evaluate(kSamples, input(), labels()).ok());
  EXPECT_EQ(executor->memory_bytes() - before, kept) << "once";
  const MicroBatch place = MakeBatching(options.training).value().Locate(Sequence(0));
  ASSERT_TRUE(executor->Forward(place, input(), labels()).ok());
  ASSERT_TRUE(trained->Forward(place, input(), labels()).ok());
  EXPECT_EQ(executor->memory_bytes(), trained->memory_bytes()) << "training has dropped them";
}

}  // namespace
}  // namespace runnel::claimed_memory_test
