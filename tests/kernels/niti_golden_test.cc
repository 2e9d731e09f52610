// The integer recipe against golden data that other programs made (tests/golden):
// scalar rules, a tiny net in full and LeNet by checksums, on every backend and
// instruction set that has the instructions.

#include <zlib.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <string>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/ref/ref_backend.h"
#include "kernels/ir/arithmetic/integer_math.h"
#include "nlohmann/json.hpp"
#include "tests/kernels/integer_backends.h"
#include "tests/kernels/integer_pipeline.h"
#include "tests/kernels/op_harness.h"
#include "tests/kernels/random_model.h"

namespace runnel::niti_golden_test {
namespace {

using nlohmann::json;

json Golden(const char* name) {
  std::ifstream file(std::string(RUNNEL_SOURCE_DIR "/tests/golden/") + name);
  return json::parse(file);
}

std::string Crc32(const void* data, size_t bytes) {
  return absl::StrFormat("%08x", crc32(0, static_cast<const Bytef*>(data), bytes));
}

// One operator a layer, so that every tensor is a boundary.
ModelSpec GoldenModel(int64_t side, int64_t classes, OpSpec conv1, OpSpec conv2, int64_t hidden) {
  const OpSpec relu = ReluOp(0);
  return ModelOf({1, side, side}, classes,
                 {{conv1},
                  {relu},
                  {MaxPoolOp({2, 2})},
                  {conv2},
                  {relu},
                  {MaxPoolOp({2, 2}), OpOf(OpKind::kFlatten, {1})},
                  {LinearOp(hidden)},
                  {relu},
                  {LinearOp(classes)}});
}

// Tensors in the order of GoldenModel's layers.
constexpr const char* kOutputs[] = {"conv1", "relu1", "pool1", "conv2", "relu2",
                                    "pool2", "fc1",   "relu3", "fc2"};
constexpr const char* kWeights[] = {"conv1", "conv2", "fc1", "fc2"};

// How one file says what a tensor is.
void ExpectMantissas(const json& want, const std::vector<int8_t>& got) {
  if (want.is_array()) {
    EXPECT_EQ(want.get<std::vector<int>>(), std::vector<int>(got.begin(), got.end()));
  } else {
    EXPECT_EQ(want["crc32"], Crc32(got.data(), got.size()));
  }
}
void ExpectAccumulators(const json& want, const std::vector<int64_t>& got) {
  const std::vector<int32_t> narrow(got.begin(), got.end());
  if (want.is_array()) {
    EXPECT_EQ(want.get<std::vector<int32_t>>(), narrow);
  } else {
    EXPECT_EQ(want["crc32"], Crc32(narrow.data(), narrow.size() * sizeof(int32_t)));
  }
}

void ExpectTensor(const json& want, const Scaled& got) {
  ExpectMantissas(want["m"], got.mantissas);
  EXPECT_EQ(want["exp"].get<int>(), got.exponent);
}

void ExpectStep(const json& tensors, IntegerPipeline& net) {
  for (size_t i = 0; i < std::size(kOutputs); ++i) {
    SCOPED_TRACE(kOutputs[i]);
    ExpectTensor(tensors[kOutputs[i]], net.Output(i));
    if (i + 1 == std::size(kOutputs)) break;
    SCOPED_TRACE("its error");
    ExpectTensor(tensors[std::string("err_") + kOutputs[i]], net.InputGradient(i + 1));
  }
  for (size_t i = 0; i < std::size(kWeights); ++i) {
    SCOPED_TRACE(std::string("gradient of ") + kWeights[i]);
    ExpectAccumulators(tensors[std::string("grad_") + kWeights[i]]["acc"], net.Gradient(i));
  }
}

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  // Trains the steps of `golden`; input and weights come from the golden data's own generator.
  void Train(const json& golden, const ModelSpec& model, uint64_t first_weight_seed) {
    auto backend = MakeIntegerBackend(GetParam());
    ASSERT_TRUE(backend.ok()) << backend.status();
    auto net = IntegerPipeline::Make(model, {1, 2, 3, 4, 5, 6, 7, 8}, 8, backend->get(),
                                     **FindRecipe("niti"));
    ASSERT_TRUE(net.ok()) << net.status();
    const uint64_t seed = golden["seed"];
    for (size_t i = 0; i < std::size(kWeights); ++i) {
      const auto count = static_cast<int64_t>(net->Weight(i).mantissas.size());
      net->SetWeight(i, {GoldenMantissas(first_weight_seed + i, count),
                         golden["weight_exponents"][kWeights[i]]});
    }
    StepContext context;
    context.gradient_bits = {golden["mu"]["conv1"], golden["mu"]["fc1"]};
    for (const json& step : golden["steps"]) {
      const uint64_t k = step["step"];
      SCOPED_TRACE(absl::StrFormat("step %d", k));
      const std::vector<float> x = GoldenValues(seed + 100 + k - 1, 8 * model.input.elements(), -5);
      std::vector<int32_t> labels(8);
      for (size_t i = 0; i < 8; ++i) {
        labels[i] = static_cast<int32_t>(SplitMix64(seed + 200 + k - 1, i) %
                                         static_cast<uint64_t>(model.classes));
      }
      ASSERT_EQ(step["labels"].get<std::vector<int32_t>>(), labels);
      ASSERT_TRUE(net->ForwardBackward(x.data(), labels.data(), context).ok());
      ExpectStep(step["tensors"], *net);
      ASSERT_TRUE(net->Update(context).ok());
      for (size_t i = 0; i < std::size(kWeights); ++i) {
        SCOPED_TRACE(std::string("new ") + kWeights[i]);
        ExpectMantissas(step["tensors"][std::string("w_") + kWeights[i]]["m"],
                        net->Weight(i).mantissas);
      }
    }
  }
};

TEST_P(GoldenTest, TinyNetInFull) {
  Train(Golden("niti_micro_full.json"), GoldenModel(12, 4, ConvOp(4, {5}), ConvOp(6, {3}), 5), 778);
}

TEST_P(GoldenTest, LeNetByChecksums) {
  Train(Golden("niti_lenet_mandheling_3steps.json"),
        GoldenModel(28, 10, ConvOp(20, {5}), ConvOp(50, {5}), 500), 20211120 + 1);
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenTest, testing::ValuesIn(IntegerBackendNames()),
                         [](const auto& info) { return TestNameOf(info.param); });

TEST(NitiRules, RoundingIsTheGoldenOne) {
  const json golden = Golden("niti_unit.json");
  const auto check = [&](const char* rule, int64_t (*round)(int64_t, int)) {
    const std::vector<int64_t> x = golden[rule]["x"];
    for (const auto& [shift, y] : golden[rule]["y"].items()) {
      const int s = std::stoi(shift);
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(SaturateMantissa(s == 0 ? x[i] : round(x[i], s)), y[i].get<int>())
            << rule << " of " << x[i] << " by " << s;
      }
    }
  };
  check("psr", RoundPseudoStochastic);
  check("round_half_away", RoundHalfAway);
  for (const auto& [shift, crc] : golden["psr_exhaustive_crc32"].items()) {
    std::vector<int8_t> y;
    for (int64_t x = -65536; x <= 65536; ++x) {
      y.push_back(SaturateMantissa(RoundPseudoStochastic(x, std::stoi(shift))));
    }
    EXPECT_EQ(crc.get<std::string>(), Crc32(y.data(), y.size())) << "shift " << shift;
  }
}

TEST(NitiRules, BitsAreTheGoldenOnes) {
  const json golden = Golden("niti_unit.json")["bits"];
  for (size_t i = 0; i < golden["max_abs"].size(); ++i) {
    EXPECT_EQ(BitsOf(golden["max_abs"][i].get<int64_t>()), golden["bits"][i].get<int>())
        << golden["max_abs"][i];
  }
}

TEST_P(GoldenTest, RescalingIsTheGoldenOne) {
  const json golden = Golden("niti_unit.json");
  for (const json& c : golden["act"]) {
    SCOPED_TRACE(c.dump());
    const std::vector<int32_t> acc = c["acc"];
    const Shape shape = {1, static_cast<int64_t>(acc.size())};
    Tensor in = ScaledTensor(shape, DType::kInt32), out = ScaledTensor(shape, DType::kInt8);
    int64_t max_abs = 0;
    for (int32_t value : acc) max_abs = std::max<int64_t>(max_abs, std::abs(int64_t{value}));
    std::memcpy(in.bytes.data(), acc.data(), acc.size() * sizeof(int32_t));
    TailOf(in.bytes.data(), DType::kInt32, shape) = {.exponent = c["e_in"], .max_abs = max_abs};
    auto backend = MakeIntegerBackend(GetParam());
    ASSERT_TRUE(backend.ok());
    ASSERT_TRUE(RunOp(OpCode::kRescale, {}, {&in}, {&out}, {}, 0, 0, backend->get(),
                      {.promote_one_to_two = c["promote_1_to_2"]})
                    .ok());
    const int8_t* got = out.data<int8_t>();
    EXPECT_EQ(c["m"].get<std::vector<int>>(), std::vector<int>(got, got + acc.size()));
    EXPECT_EQ(c["e_out"].get<int>(), TailOf(out.bytes.data(), DType::kInt8, shape).exponent);
  }
}

TEST_P(GoldenTest, GradientShiftIsTheGoldenOne) {
  const json golden = Golden("niti_unit.json");
  for (const json& c : golden["grad"]) {
    SCOPED_TRACE(c.dump());
    const std::vector<int32_t> gradient = c["G"];
    const Shape shape = {1, static_cast<int64_t>(gradient.size())};
    Tensor w = ScaledTensor(shape, DType::kInt8), g = ScaledTensor(shape, DType::kInt32);
    Tensor updated = ScaledTensor(shape, DType::kInt8);
    int64_t max_abs = 0;
    for (int32_t value : gradient) max_abs = std::max<int64_t>(max_abs, std::abs(int64_t{value}));
    std::memcpy(g.bytes.data(), gradient.data(), gradient.size() * sizeof(int32_t));
    TailOf(g.bytes.data(), DType::kInt32, shape) = {.max_abs = max_abs};
    TailOf(w.bytes.data(), DType::kInt8, shape) = {.exponent = -9};
    StepContext context;
    context.gradient_bits = {c["mu"], 7};
    auto backend = MakeIntegerBackend(GetParam());
    ASSERT_TRUE(backend.ok());
    ASSERT_TRUE(RunOp(OpCode::kNitiUpdate, OpOf(OpKind::kConv, {0}), {&w, &g}, {&updated}, context,
                      0, 0, backend->get())
                    .ok());
    const int8_t* got = updated.data<int8_t>();  // 0 - g
    for (size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(-got[i], c["g"][i].get<int>());
    EXPECT_EQ(TailOf(updated.bytes.data(), DType::kInt8, shape).exponent, -9);
  }
}

TEST_P(GoldenTest, LossGradientIsTheGoldenOne) {
  const json golden = Golden("niti_unit.json");
  for (const json& c : golden["loss"]) {
    SCOPED_TRACE(c.dump());
    const std::vector<int> v = c["v"];
    const Shape shape = {1, static_cast<int64_t>(v.size())};
    Tensor logits = ScaledTensor(shape, DType::kInt8), gradient = ScaledTensor(shape, DType::kInt8);
    Tensor labels = TensorOf<int32_t>({1}, DType::kInt32, {c["t"]});
    Tensor metrics = Zeros({16}, DType::kUInt8);
    for (size_t i = 0; i < v.size(); ++i) logits.data<int8_t>()[i] = static_cast<int8_t>(v[i]);
    TailOf(logits.bytes.data(), DType::kInt8, shape).exponent = c["e"];
    auto backend = MakeIntegerBackend(GetParam());
    ASSERT_TRUE(backend.ok());
    ASSERT_TRUE(RunOp(OpCode::kIntegerSoftmaxCrossEntropy, {}, {&logits, &labels},
                      {&gradient, &metrics}, {}, 0, 0, backend->get())
                    .ok());
    const int8_t* got = gradient.data<int8_t>();
    EXPECT_EQ(c["m"].get<std::vector<int>>(), std::vector<int>(got, got + v.size()));
  }
}

}  // namespace
}  // namespace runnel::niti_golden_test
