// Whole nets of the integer recipe: every tensor has the same bytes on every backend, instruction
// set and thread count, however the net is cut. LeNet also against checksums of ref in
// tests/golden, so that other machines (arm64) can be held against this one.

#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/base/status_macros.h"
#include "tests/kernels/integer_backends.h"
#include "tests/kernels/integer_pipeline.h"
#include "tests/kernels/random_model.h"

namespace runnel::niti_bytes_test {
namespace {

using Digests = std::map<std::string, std::string>;

std::string Crc32(const void* data, size_t bytes) {
  return absl::StrFormat("%08x", crc32(0, static_cast<const Bytef*>(data), bytes));
}

std::string DigestOf(const Scaled& tensor) {
  return absl::StrCat(Crc32(tensor.mantissas.data(), tensor.mantissas.size()), " e",
                      tensor.exponent);
}

void AddDigests(IntegerPipeline& net, int step, Digests* digests) {
  const auto key = [step](const char* what, size_t i) {
    return absl::StrFormat("step %02d %s %02d", step, what, i);
  };
  for (size_t i = 0; i < net.stages.size(); ++i) {
    (*digests)[key("output", i)] = DigestOf(net.Output(i));
    if (i > 0) (*digests)[key("error", i)] = DigestOf(net.InputGradient(i));
  }
  for (size_t i = 0; i < net.weight_count(); ++i) {
    ScaleTail tail;
    const std::vector<int64_t> gradient = net.Gradient(i, &tail);
    (*digests)[key("gradient", i)] = absl::StrCat(
        Crc32(gradient.data(), gradient.size() * sizeof(int64_t)), " e", tail.exponent);
    (*digests)[key("weight", i)] = DigestOf(net.Weight(i));
  }
}

struct Training {
  ModelSpec model;
  const Recipe* recipe = nullptr;
  std::vector<int> cuts;
  int64_t batch = 4;
  int steps = 3;
  int micro_batches = 1;
};

absl::StatusOr<Digests> Train(const Training& t, const std::string& backend_name) {
  auto backend = MakeIntegerBackend(backend_name);
  if (!backend.ok()) return backend.status();
  auto net = IntegerPipeline::Make(t.model, t.cuts, t.batch, backend->get(), *t.recipe,
                                   t.micro_batches > 1);
  if (!net.ok()) return net.status();
  SetGoldenWeights(*net, 1000);
  Digests digests;
  StepContext context;
  context.run_seed = 3;
  context.gradient_bits = {3, 4};
  const auto samples = [count = t.batch * t.model.input.elements()](int64_t sequence) {
    return GoldenValues(5000 + static_cast<uint64_t>(sequence), count, -5);
  };
  int64_t sequence = 0;
  for (int step = 1; step <= t.steps; ++step) {
    RUNNEL_RETURN_IF_ERROR(
        TrainStep(*net, t.micro_batches, t.batch, t.model.classes, samples, context, sequence));
    if (step == 1 || step == t.steps) AddDigests(*net, step, &digests);
  }
  return digests;
}

// Everything that a residual net brings: overlapping padded pooling, strides, projections, adds,
// depthwise, dropout, a mean over the plane.
ModelSpec SmallResNet() {
  OpSpec dropout = OpOf(OpKind::kDropout, {1});
  dropout.rate = 0.5;
  return ModelOf({3, 19, 19}, 7,
                 {{ConvOp(12, {3, 2, 1}, 0), ReluOp(1), MaxPoolOp({3, 2, 1}, 2)},
                  {ConvOp(12, {3, 1, 1}, 0), ReluOp(1), ConvOp(12, {3, 1, 1}, 2),
                   OpOf(OpKind::kAdd, {3, 0}), ReluOp(4)},
                  {ConvOp(20, {3, 2, 1}, 0), ReluOp(1), ConvOp(20, {3, 1, 1}, 2),
                   ConvOp(20, {1, 2, 0}, 0), OpOf(OpKind::kAdd, {3, 4}), ReluOp(5)},
                  {ConvOp(20, {3, 1, 1}, 0, 20), ReluOp(1), ConvOp(33, {1, 1, 0}, 2)},
                  {OpOf(OpKind::kGlobalAvgPool, {0}), dropout, LinearOp(7, {2})}});
}

// VGG-11 with an eighth of its channels.
ModelSpec NarrowVgg() {
  std::vector<std::vector<OpSpec>> layers;
  for (int64_t out : {8, 0, 16, 0, 32, 32, 0, 64, 64, 0, 64, 64, 0}) {
    if (out > 0) {
      layers.push_back({ConvOp(out, {3, 1, 1}, 0), ReluOp(1)});
    } else {
      layers.push_back({MaxPoolOp({2, 2, 0}, 0)});
    }
  }
  layers.push_back({OpOf(OpKind::kFlatten, {0}), LinearOp(10, {1})});
  return ModelOf({3, 32, 32}, 10, layers);
}

class BytesTest : public testing::TestWithParam<std::string> {
 protected:
  void ExpectLikeRef(const Training& training) {
    const auto ours = Train(training, GetParam());
    ASSERT_TRUE(ours.ok()) << ours.status();
    const auto ref = Train(training, "ref/1");
    ASSERT_TRUE(ref.ok()) << ref.status();
    EXPECT_GT(ref->size(), 10u);
    EXPECT_EQ(*ours, *ref);
  }
};

TEST_P(BytesTest, LeNetAfterOneAndTenSteps) {
  const auto digests = Train({.model = LeNetModel(),
                              .recipe = *FindRecipe("niti"),
                              .cuts = {1, 2, 3, 4, 5},
                              .batch = 8,
                              .steps = 10},
                             GetParam());
  ASSERT_TRUE(digests.ok()) << digests.status();
  const char* path = RUNNEL_SOURCE_DIR "/tests/golden/niti_lenet_10steps.json";
  if (const char* write = std::getenv("RUNNEL_WRITE_GOLDEN"); write != nullptr) {
    std::ofstream(write) << nlohmann::json(*digests).dump(1) << "\n";
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  EXPECT_EQ(nlohmann::json::parse(file).get<Digests>(), *digests);
}

TEST_P(BytesTest, SmallResNetInEveryProfile) {
  for (const Recipe* recipe :
       {*FindRecipe("niti"), *FindRecipe("niti:niti2020"), *FindRecipe("niti:niti2021")}) {
    SCOPED_TRACE(std::string(recipe->name));
    ExpectLikeRef({.model = SmallResNet(), .recipe = recipe, .cuts = {1, 2, 3, 4}});
  }
}

TEST_P(BytesTest, AddsUpMicroBatches) {
  ExpectLikeRef(
      {.model = SmallResNet(), .recipe = *FindRecipe("niti"), .cuts = {2}, .micro_batches = 3});
}

TEST_P(BytesTest, NarrowVgg) {
  ExpectLikeRef(
      {.model = NarrowVgg(), .recipe = *FindRecipe("niti"), .batch = 2, .micro_batches = 2});
}

TEST_P(BytesTest, CutsChangeNothing) {
  const auto weights = [&](std::vector<int> cuts) {
    const auto digests =
        Train({.model = SmallResNet(), .recipe = *FindRecipe("niti"), .cuts = std::move(cuts)},
              GetParam());
    EXPECT_TRUE(digests.ok()) << digests.status();
    Digests only;
    for (const auto& [key, value] : *digests) {
      if (key.find("weight") != std::string::npos) only[key] = value;
    }
    return only;
  };
  const Digests whole = weights({});
  EXPECT_EQ(whole, weights({2}));
  EXPECT_EQ(whole, weights({1, 2, 3, 4}));
}

INSTANTIATE_TEST_SUITE_P(Backends, BytesTest, testing::ValuesIn(IntegerBackendNames()),
                         [](const auto& info) { return TestNameOf(info.param); });

// Segments of all lengths, on all processors that there are.
TEST(SeveralProcessorsAtRandom, GiveTheBytesOfOne) {
  const char* text = std::getenv("RUNNEL_MIXED_SEEDS");
  const int seeds = text != nullptr ? std::atoi(text) : 6;
  for (const ModelSpec& model : {SmallResNet(), NarrowVgg()}) {
    const Training training = {
        .model = model, .recipe = *FindRecipe("niti"), .cuts = {2}, .batch = 2, .micro_batches = 2};
    const auto ref = Train(training, "ref/1");
    ASSERT_TRUE(ref.ok()) << ref.status();
    for (int seed = 0; seed < seeds; ++seed) {
      const std::string name = RandomlyMixed(seed);
      const auto mixed = Train(training, name);
      ASSERT_TRUE(mixed.ok()) << name << mixed.status();
      EXPECT_EQ(*mixed, *ref) << name;
      const std::string grouped = absl::StrCat(kGrouped, seed, "/1");
      const auto other = Train(training, grouped);
      ASSERT_TRUE(other.ok()) << grouped << other.status();
      EXPECT_EQ(*other, *ref) << grouped;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(SeveralProcessors, BytesTest, testing::ValuesIn(MixedBackendNames()),
                         [](const auto& info) { return TestNameOf(info.param); });

}  // namespace
}  // namespace runnel::niti_bytes_test
