// A narrow stash (--stash): what the backward reads of the forward is rounded, whatever the backend,
// its fused steps and the cut, and takes the bytes of its type.

#include "kernels/ir/passes/narrow_stash.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/recipe.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "tests/kernels/cpu/capped_cpu.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::narrow_stash_test {
namespace {

using Tensors = std::vector<std::vector<float>>;

constexpr const char* kTypes[] = {"bf16", "fp16", "e4m3", "e5m2"};

// Parameters behind two steps of two micro-batches; the memory contract is checked.
Tensors Train(const ModelSpec& model, std::vector<int> cuts, Backend* backend, uint64_t seed,
              const char* recipe = "fp32") {
  return TrainTwoSteps(model, std::move(cuts), 3, backend, seed, 2, Steps::kApart, recipe)
      .parameters;
}

bool AreSame(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

ModelSpec Small(const std::string& name) {
  ModelSpec model = *MakeModel(name);
  if (model.input.rank() == 3 && name != "lenet") model.input = {model.input[0], 16, 16};
  return model;
}

TEST(NarrowStash, NeitherFusionNorACutChangesAByte) {
  const std::string cap = CpuInstructionSets().front();
  const auto plain = Cpu(cap, 1, false), fused = Cpu(cap, 2, true);
  for (const char* name : {"resnet8", "mobilenet_v2", "lenet", "har_cnn"}) {
    const Tensors kept = Train(Small(name), {}, plain.get(), 7);
    for (const char* type : kTypes) {
      SCOPED_TRACE(absl::StrCat(name, ", ", type));
      const ModelSpec model = *WithStash(Small(name), type);
      const Tensors rounded = Train(model, {}, plain.get(), 7);
      EXPECT_FALSE(AreSame(rounded, kept)) << "nothing was rounded";
      EXPECT_TRUE(AreSame(rounded, Train(model, {}, fused.get(), 7)));
      EXPECT_TRUE(AreSame(rounded, Train(model, {1, 3}, fused.get(), 7)));
      EXPECT_TRUE(AreSame(rounded, Train(model, {2}, plain.get(), 7)));
    }
  }
}

TEST(NarrowStash, RandomModelsTrainToTheSameBytes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const auto plain = Cpu("portable", 1, false), fused = Cpu("portable", 2, true);
    ModelSpec model = *WithStash(RandomModel(seed), kTypes[seed % 4]);
    const Tensors rounded = Train(model, {}, plain.get(), seed);
    EXPECT_TRUE(AreSame(rounded, Train(model, {}, fused.get(), seed)));
    const std::vector<int> cut(model.layer_count() > 1 ? 1 : 0, model.layer_count() / 2);
    EXPECT_TRUE(AreSame(rounded, Train(model, cut, fused.get(), seed)));
    // With layers that are made again their inputs alone are rounded: other bytes, wherever it is
    // cut.
    for (LayerSpec& layer : model.layers) layer.recompute = true;
    const Tensors again = Train(model, {}, plain.get(), seed);
    EXPECT_TRUE(AreSame(again, Train(model, {}, fused.get(), seed)));
    EXPECT_TRUE(AreSame(again, Train(model, cut, fused.get(), seed)));
  }
}

// Halves give the same bytes everywhere, with a narrow stash too.
TEST(NarrowStash, OfHalvesIsTheSameOnEveryInstructionSet) {
  for (const char* recipe : {"bf16", "fp16"}) {
    const ModelSpec model = *WithStash(Small("resnet8"), "e5m2");
    const Tensors portable = Train(model, {}, Cpu("portable", 1, false).get(), 7, recipe);
    EXPECT_FALSE(
        AreSame(portable, Train(Small("resnet8"), {}, Cpu("portable", 1, false).get(), 7, recipe)));
    for (const std::string& cap : CpuInstructionSets()) {
      SCOPED_TRACE(absl::StrCat(recipe, ", ", cap));
      EXPECT_TRUE(AreSame(portable, Train(model, {}, Cpu(cap, 2, true).get(), 7, recipe)));
      EXPECT_TRUE(AreSame(portable, Train(model, {1, 3}, Cpu(cap, 1, true).get(), 7, recipe)));
    }
    // No smaller than the recipe's own values.
    EXPECT_TRUE(AreSame(
        Train(Small("lenet"), {}, Cpu("portable", 1, false).get(), 7, recipe),
        Train(*WithStash(Small("lenet"), "bf16"), {}, Cpu("portable", 1, false).get(), 7, recipe)));
  }
}

TEST(NarrowStash, TakesTheBytesOfItsType) {
  const auto stash = [](const ModelSpec& model, const char* recipe) {
    return static_cast<double>(
        CompileStage(model, 0, model.layer_count() - 1, 8, **FindRecipe(recipe), {.max_batch = 8})
            ->stash_bytes);
  };
  for (const char* name : {"lenet", "resnet8", "transformer_tiny"}) {
    SCOPED_TRACE(name);
    const ModelSpec model = *MakeModel(name);
    const double kept = stash(model, "fp32");
    EXPECT_LE(stash(*WithStash(model, "bf16"), "fp32"), 0.56 * kept);
    EXPECT_LE(stash(*WithStash(model, "e4m3"), "fp32"), 0.34 * kept);
    EXPECT_LE(stash(*WithStash(model, "e5m2"), "bf16"), 0.62 * stash(model, "bf16"));
    EXPECT_EQ(stash(*WithStash(model, "fp16"), "bf16"), stash(model, "bf16"));
  }
}

}  // namespace
}  // namespace runnel::narrow_stash_test
