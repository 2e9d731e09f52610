#include <cmath>
#include <cstring>
#include <numeric>

#include "central/records/weights_digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/random.h"
#include "proto/base/training/recipe_family.h"
#include "proto/crypto/sha256.h"
#include "tests/central/sample_model.h"

namespace runnel::weights_test {
namespace {

std::vector<float> Values(const TensorData& tensor) {
  std::vector<float> values(tensor.bytes.size() / 4);
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

const TensorData& Find(const ModelState& state, int layer, const std::string& name) {
  for (const TensorData& tensor : state.layers[layer].tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return state.layers[layer].tensors[0];
}

double Mean(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Deviation(const std::vector<float>& values) {
  double sum = 0;
  for (float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(InitialState, FitsTheModel) {
  const ModelSpec model = testing::SampleModel();
  const auto state = InitialState(model, 1);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(CheckState(*state, model, 0, 2).ok()) << CheckState(*state, model, 0, 2);
  EXPECT_TRUE(state->encoders.empty());
}

TEST(InitialState, UniformByFanIn) {
  const auto state = InitialState(testing::SampleModel(), 1);
  const double bound = 1 / std::sqrt(8 * 6 * 6);
  const std::vector<float> weight = Values(Find(*state, 1, "1.weight"));
  ASSERT_EQ(weight.size(), 50u * 288);
  for (float value : weight) ASSERT_LE(std::abs(value), bound);
  EXPECT_NEAR(Mean(weight), 0, 5 * bound / std::sqrt(3 * 14400.0));
  EXPECT_NEAR(Deviation(weight), bound / std::sqrt(3), 0.02 * bound);
  // Element e of tensor t of layer l, and rounded once.
  const CounterRandom weights(1, RandomPurpose::kInitialWeights, 1, 0);
  const CounterRandom biases(1, RandomPurpose::kInitialWeights, 1, 1);
  for (uint64_t e : {0, 1, 5, 14399}) {
    EXPECT_EQ(weight[e], static_cast<float>((2.0 * weights.Uniform(e) - 1) * bound));
  }
  EXPECT_EQ(Values(Find(*state, 1, "1.bias"))[7],
            static_cast<float>((2.0 * biases.Uniform(7) - 1) * bound));
}

TEST(InitialState, NormalByFanOutAndByDeviation) {
  const auto state = InitialState(testing::SampleModel(), 3);
  const std::vector<float> conv = Values(Find(*state, 0, "0.weight"));
  ASSERT_EQ(conv.size(), 8u * 2 * 9);
  const double by_fan_out = std::sqrt(2.0 / (9 * 8));
  EXPECT_NEAR(Deviation(conv), by_fan_out, 0.2 * by_fan_out);
  const CounterRandom draws(3, RandomPurpose::kInitialWeights, 0, 0);
  EXPECT_EQ(conv[100], static_cast<float>(draws.Normal(100) * by_fan_out));
  for (float value : Values(Find(*state, 0, "0.bias"))) EXPECT_EQ(value, 0);
  const std::vector<float> last = Values(Find(*state, 2, "0.weight"));
  EXPECT_NEAR(Deviation(last), 0.02, 0.002);
  for (float value : Values(Find(*state, 2, "0.bias"))) EXPECT_EQ(value, 0);
}

TEST(InitialState, BatchNormAndMomentum) {
  const auto state = InitialState(testing::SampleModel(), 1);
  for (float value : Values(Find(*state, 0, "1.scale"))) EXPECT_EQ(value, 1);
  for (float value : Values(Find(*state, 0, "1.shift"))) EXPECT_EQ(value, 0);
  for (float value : Values(Find(*state, 0, "1.running_mean"))) EXPECT_EQ(value, 0);
  for (float value : Values(Find(*state, 0, "1.running_var"))) EXPECT_EQ(value, 1);
  for (const LayerState& layer : state->layers) {
    for (const TensorData& momentum : layer.slots) {
      for (float value : Values(momentum)) EXPECT_EQ(value, 0);
    }
  }
}

TEST(InitialState, IsAFunctionOfSeedAndPlace) {
  ModelSpec model = testing::SampleModel();
  const auto once = InitialState(model, 1);
  EXPECT_TRUE(*once == *InitialState(model, 1));
  EXPECT_NE(WeightsSha256(*once), WeightsSha256(*InitialState(model, 2)));
  // What comes behind a layer does not change it.
  model.layers[2].ops[0].init_std = 5;
  const auto other = InitialState(model, 1);
  EXPECT_TRUE(once->layers[0] == other->layers[0]);
  EXPECT_TRUE(once->layers[1] == other->layers[1]);
  EXPECT_FALSE(once->layers[2] == other->layers[2]);
}

TEST(InitialState, RefusesAModelThatDoesNotFit) {
  ModelSpec model = testing::SampleModel();
  model.classes = 11;
  EXPECT_EQ(InitialState(model, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

const RecipeFamily& Niti() { return *ParseRecipeName("niti")->family; }
const NumberFormat kInt8 = Niti().format;

// The sample model without what integers have no form of.
ModelSpec IntegerModel() {
  ModelSpec model = testing::SampleModel();
  for (LayerSpec& layer : model.layers) {
    for (OpSpec& op : layer.ops) op.bias = false;
  }
  model.layers[0].ops.pop_back();
  return model;
}

TEST(InitialState, IntegersAreTheQuantizedDraws) {
  const ModelSpec model = IntegerModel();
  const auto fp32 = InitialState(model, 1);
  const auto state = InitialState(model, 1, kInt8);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(CheckState(*state, model, 0, 2, kInt8).ok());
  EXPECT_FALSE(CheckState(*state, model, 0, 2).ok());
  EXPECT_FALSE(CheckState(*fp32, model, 0, 2, kInt8).ok());
  const std::vector<float> drawn = Values(Find(*fp32, 1, "1.weight"));
  const std::string& mantissas = Find(*state, 1, "1.weight").bytes;
  int32_t exponent = 0;
  std::memcpy(&exponent, Find(*state, 1, "1.exponent").bytes.data(), 4);
  float largest = 0;
  for (float value : drawn) largest = std::max(largest, std::abs(value));
  EXPECT_EQ(exponent, static_cast<int32_t>(std::ceil(std::log2(largest))) - 7);
  for (size_t e = 0; e < drawn.size(); ++e) {
    ASSERT_EQ(static_cast<int8_t>(mantissas[e]), std::round(127.0 * drawn[e] / largest));
  }
  EXPECT_TRUE(state->layers[1].slots.empty());
}

TEST(CheckState, ValuesThatNoIntegerRecipeHasAreRefused) {
  const ModelSpec model = IntegerModel();
  const auto good = InitialState(model, 1, kInt8);
  ModelState state = *good;
  state.layers[2].tensors[0].bytes[7] = '\x80';
  absl::Status status = CheckState(state, model, 0, 2, kInt8);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("0.weight has a mantissa of -128"));
  state = *good;
  state.layers[2].tensors[1].bytes[3] = '\x7f';
  status = CheckState(state, model, 0, 2, kInt8);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("0.exponent is "));
}

TEST(CheckTrainable, NamesLayerAndOperator) {
  EXPECT_TRUE(CheckTrainable(IntegerModel(), Niti()).ok());
  EXPECT_TRUE(CheckTrainable(testing::SampleModel(), RecipeFamilies()[0]).ok());
  ModelSpec model = IntegerModel();
  model.layers[2].ops[0].bias = true;
  EXPECT_THAT(std::string(CheckTrainable(model, Niti()).message()),
              ::testing::HasSubstr("layer fc2, op 0 (linear): has a bias"));
}

// Two layers; a weight, a buffer, a bias.
ModelState SmallState() {
  ModelState state;
  LayerState first;
  first.tensors = {{"0.weight", DType::kFloat32, {1, 2}, std::string("\0\0\x80\x3f\0\0\0\x40", 8)},
                   {"1.running_mean", DType::kFloat32, {1}, std::string("\0\0\0\x3f", 4)}};
  LayerState second;
  second.layer = 1;
  second.tensors = {{"0.bias", DType::kFloat32, {1}, std::string("\0\0\x80\xbf", 4)}};
  state.layers = {first, second};
  return state;
}

// The digits are those of the Python lines in weights_digest.h for weight [[1, 2]], bias [-1] and
// running_mean [0.5].
TEST(WeightsSha256, FollowsTheDefinition) {
  EXPECT_EQ(WeightsSha256(SmallState()),
            "1cfbe58598945bf75d00ce8873b839075488bb0a4f9210d88fdbf3790244368c");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(WeightsSha256, MantissasComeBeforeExponents) {
  ModelState state;
  state.layers.resize(2);
  state.layers[1].layer = 1;
  for (LayerState& layer : state.layers) {
    layer.tensors = {{"0.weight", DType::kInt8, {1, 2}, "\x01\xff"},
                     {"0.exponent", DType::kInt32, {1}, std::string("\xf8\xff\xff\xff", 4)}};
  }
  const std::string exponent("\xf8\xff\xff\xff", 4);
  EXPECT_EQ(WeightsSha256(state), Sha256Hex("0.0.weight i8 1x2\n\x01\xff"
                                            "1.0.weight i8 1x2\n\x01\xff"
                                            "0.0.exponent i32 1\n" +
                                            exponent + "1.0.exponent i32 1\n" + exponent));
}

TEST(WeightsSha256, EveryPartCounts) {
  const std::string whole = WeightsSha256(SmallState());
  ModelState state = SmallState();
  state.layers[0].tensors[1].bytes[0] = 1;
  EXPECT_NE(WeightsSha256(state), whole);
  state = SmallState();
  state.layers[0].tensors[0].shape = {2, 1};
  EXPECT_NE(WeightsSha256(state), whole);
  state = SmallState();
  state.layers[1].tensors[0].name = "1.bias";
  EXPECT_NE(WeightsSha256(state), whole);
  state = SmallState();
  state.layers[0].slots = state.layers[0].tensors;
  state.encoders.push_back({});
  EXPECT_EQ(WeightsSha256(state), whole);
}

}  // namespace
}  // namespace runnel::weights_test
