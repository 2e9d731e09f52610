// Training on the OpenCL backend whose activations are halves. Skipped where there is no device.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/opencl/opencl_backend.h"
#include "partition/zoo/zoo.h"
#include "tests/kernels/opencl/half_floats.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::opencl::opencl_half_training_test {
namespace {

// Makes again what batch normalisations give.
class RecomputingBackend final : public Backend {
 public:
  explicit RecomputingBackend(Backend* inner) : inner_(inner) {}
  BackendTraits traits() const override {
    BackendTraits traits = inner_->traits();
    traits.recomputes = true;
    return traits;
  }
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    return inner_->Prepare(program);
  }

 private:
  Backend* const inner_;
};

struct Training {
  ModelSpec model;
  const char* recipe = "fp32";
  std::vector<int> cuts = {};
  Steps steps = Steps::kApart;
  int count = 2;
  int64_t batch = 4;
  double rate = 0.01;
  Checks checks = Checks::kOn;
};

struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<float>> parameters, statistics, boundaries;
};

Trained Train(const Training& t, Backend& backend) {
  Trained result;
  auto pipeline =
      TestPipeline::Make(t.model, t.cuts, t.batch, &backend, 3, t.checks, t.steps, t.recipe);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return result;
  StepContext context = {.run_seed = 3, .step_labels = t.batch, .learning_rate = t.rate};
  context.momentum = 0.5;
  const std::vector<float> x = RandomValues(3, 1, t.batch * t.model.input.elements());
  const std::vector<int32_t> labels = RandomLabels(3, 1, t.batch, t.model.classes);
  for (int step = 0; step < t.count; ++step) {
    const absl::Status status = pipeline->ForwardBackward(x.data(), labels.data(), context);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(pipeline->Update(context).ok());
    result.losses.push_back(pipeline->Loss() / static_cast<double>(t.batch));
    context.sequence = context.sequence.next();
  }
  result.parameters = pipeline->Tensors(Storage::kParameters);
  result.statistics = pipeline->Tensors(Storage::kStatistics);
  for (size_t i = 0; i + 1 < pipeline->stages.size(); ++i) {
    TestStage& stage = *pipeline->stages[i];
    const float* output = stage.data(Storage::kOutput);
    result.boundaries.emplace_back(output, output + stage.program.output.elements());
  }
  return result;
}

// Two residual blocks with batch norms, the second with a convolution beside.
ModelSpec SmallResidualNet() {
  const auto conv = [](int64_t channels, int32_t from) {
    OpSpec op = OpOf(OpKind::kConv, {from});
    op.out_channels = channels;
    op.kernel[0] = op.kernel[1] = 3;
    op.padding[0] = op.padding[1] = 1;
    return op;
  };
  using enum OpKind;
  const auto block = [&](int64_t channels) {
    return std::vector<OpSpec>{conv(channels, 0),     OpOf(kBatchNorm, {1}), OpOf(kRelu, {2}),
                               conv(channels, 3),     OpOf(kBatchNorm, {4}), conv(channels, 0),
                               OpOf(kBatchNorm, {6}), OpOf(kAdd, {5, 7}),    OpOf(kRelu, {8})};
  };
  return ModelOf({3, 8, 8}, 10,
                 {{conv(8, 0), OpOf(kBatchNorm, {1}), OpOf(kRelu, {2})},
                  block(8),
                  block(12),
                  {OpOf(kGlobalAvgPool, {0}), OpOf(kFlatten, {1}), LinearOp(10, {2})}});
}

// No parameters in front, whose gradients nobody wants but the stage behind a cut; logits that are
// a view of the last but one layer's output.
ModelSpec NetWithBareEnds() {
  using enum OpKind;
  OpSpec pool = OpOf(kMaxPool, {0}), conv = OpOf(kConv, {0});
  pool.kernel[0] = pool.kernel[1] = pool.stride[0] = pool.stride[1] = 2;
  conv.kernel[0] = conv.kernel[1] = 3;
  conv.out_channels = 4;
  return ModelOf({2, 6, 6}, 4, {{OpOf(kRelu, {0})}, {pool}, {conv}, {OpOf(kFlatten, {0})}});
}

class OpenClHalfTrainingTest : public testing::Test {
 protected:
  void SetUp() override {
    auto floats = MakeBackendWith({});
    if (!floats.ok()) GTEST_SKIP() << "no OpenCL here: " << floats.status().message();
    floats_ = *std::move(floats);
    halves_ = *MakeBackendWith({.activations = "fp16"});
    both_ = *MakeBackendWith({.weights = "fp16", .activations = "fp16"});
  }

  // What a device learns with halves is what it learns without, to a few roundings of 2^-11.
  void ExpectLearns(const Training& training, Backend& backend) {
    const Trained floats = Train(training, *floats_), halves = Train(training, backend);
    ASSERT_EQ(halves.losses.size(), floats.losses.size());
    EXPECT_LT(halves.losses.back(), 0.7 * halves.losses.front());
    EXPECT_NE(halves.losses, floats.losses);
    for (size_t i = 0; i < halves.losses.size(); ++i)
      EXPECT_NEAR(halves.losses[i], floats.losses[i], 0.03) << i;
    EXPECT_EQ(Train(training, backend).parameters, halves.parameters) << "twice";
  }

  std::unique_ptr<Backend> floats_, halves_, both_;
};

TEST_F(OpenClHalfTrainingTest, LeNetLearnsAsInFp32AndTwiceTheSame) {
  const Training training = {.model = MakeModel("lenet").value(),
                             .count = 8,
                             .batch = 16,
                             .rate = 0.005,
                             .checks = Checks::kOff};
  ExpectLearns(training, *halves_);
  ExpectLearns(training, *both_);
}

TEST_F(OpenClHalfTrainingTest, ANetWithBatchNormsLearnsAsInFp32AndTwiceTheSame) {
  const Training training = {
      .model = SmallResidualNet(), .count = 8, .batch = 8, .rate = 0.05, .checks = Checks::kOff};
  ExpectLearns(training, *halves_);
  ExpectLearns(training, *both_);
}

// With each layer a stage of its own, where all boundary tensors hold values of halves.
TEST_F(OpenClHalfTrainingTest, CutsAndUpdatesInTheBackwardChangeNoByte) {
  std::vector<ModelSpec> models = {SmallResidualNet(), NetWithBareEnds()};
  for (uint64_t seed = 1; seed <= 60; ++seed) models.push_back(RandomModel(seed));
  for (const ModelSpec& model : models) {
    for (const char* recipe : {"fp32", "dorefa:4,4,8"}) {
      SCOPED_TRACE(testing::Message() << model.name << " " << recipe);
      const Trained whole = Train({.model = model, .recipe = recipe}, *halves_);
      std::vector<std::vector<int>> cuts = {{}};
      for (int cut = 1; cut < model.layer_count(); ++cut) {
        cuts[0].push_back(cut);
        cuts.push_back({cut});
      }
      for (const std::vector<int>& at : cuts) {
        const Trained cut = Train({.model = model, .recipe = recipe, .cuts = at}, *halves_);
        ASSERT_EQ(cut.losses, whole.losses) << testing::PrintToString(at);
        ASSERT_EQ(cut.parameters, whole.parameters) << testing::PrintToString(at);
        ASSERT_EQ(cut.statistics, whole.statistics) << testing::PrintToString(at);
      }
      const Training alone = {.model = model, .recipe = recipe, .steps = Steps::kAlone};
      EXPECT_EQ(Train(alone, *halves_).parameters, whole.parameters);
      RecomputingBackend recomputing(halves_.get());
      for (const std::vector<int>& at : {std::vector<int>(), cuts[0]}) {
        EXPECT_EQ(Train({.model = model, .recipe = recipe, .cuts = at}, recomputing).parameters,
                  whole.parameters);
      }
    }
  }
}

// Areas that are copied, and weights that are read as images.
TEST_F(OpenClHalfTrainingTest, OtherWaysGiveTheSameBytes) {
  const Training training = {.model = SmallResidualNet(), .cuts = {2}};
  for (const char* weights : {"fp32", "fp16"}) {
    const Trained usual = Train(training, weights == std::string("fp16") ? *both_ : *halves_);
    const char* image = "4x4 by 8x8, depth 8, vector 4, weights image";
    for (const Options& options :
         {Options{.memory = "copied", .weights = weights, .activations = "fp16"},
          Options{.tile = image, .weights = weights, .activations = "fp16"}}) {
      auto backend = MakeBackendWith(options);
      if (!backend.ok()) {
        EXPECT_FALSE(options.tile.empty()) << backend.status();
        continue;  // a device without images
      }
      EXPECT_EQ(Train(training, **backend).parameters, usual.parameters)
          << weights << options.memory << options.tile;
    }
  }
}

TEST_F(OpenClHalfTrainingTest, BoundaryTensorsAreFp32WithTheValuesOfHalves) {
  const Training training = {.model = SmallResidualNet(), .cuts = {1, 2, 3}};
  for (const std::vector<float>& boundary : Train(training, *halves_).boundaries) {
    for (const float value : boundary) ASSERT_EQ(value, RoundToHalf(value));
  }
}

}  // namespace
}  // namespace runnel::opencl::opencl_half_training_test
