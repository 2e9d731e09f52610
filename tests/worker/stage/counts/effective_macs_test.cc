// What the rows of recipes say of their products' bits is what programs compute with.

#include "worker/stage/counts/effective_macs.h"

#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/training/precision/precision_cost.h"

namespace runnel::effective_macs_test {
namespace {

constexpr int64_t kBatch = 3;

// Null: the recipe cannot train the model.
std::optional<Program> ProgramOf(const ModelSpec& model, const Recipe& recipe, bool integers) {
  CompileOptions options;
  options.max_batch = kBatch;
  options.integer_products = integers;
  absl::StatusOr<Program> program =
      CompileStage(model, 0, model.layer_count() - 1, kBatch, recipe, options);
  if (!program.ok()) return std::nullopt;
  return *std::move(program);
}

// With a convolution first, with depthwise ones, with shortcuts, with linear layers alone behind.
constexpr const char* kModels[] = {"lenet", "mobilenet_v2", "resnet8", "vgg11"};

// Without dorefa, whose rows do not know which activations a ReLU bounds: others lie on no grid, and
// one that the last operator reads does.
TEST(EffectiveMacs, OfProgramsAreThoseThatRecipesSay) {
  int compared = 0;
  for (const char* name :
       {"niti", "niti:niti2021", "sbm:4,8,16", "sbm_range:8,4,8", "ui8", "mls:2,4", "octo",
        "octo_lac", "wageubn", "wageubn:16", "fp8_chunk", "fp8_chunk:fp32", "bf16", "fp16"}) {
    const RecipeName parsed = *ParseRecipeName(name);
    const Recipe& recipe = **FindRecipe(name);
    const std::vector<GridBits> levels = parsed.family->grids.any() && parsed.parameters[0] != "1"
                                             ? std::vector<GridBits>{{}, {3, 6}}
                                             : std::vector<GridBits>{{}};
    for (const char* of : kModels) {
      const ModelSpec model = *MakeModel(of);
      for (const bool integers : {false, true}) {
        const std::optional<Program> program = ProgramOf(model, recipe, integers);
        if (!program.has_value()) continue;
        const ProgramMacs macs = ProgramMacs::OfTraining(*program);
        const SampleMacs claimed = *SampleMacsOf(model);
        EXPECT_EQ(macs.done(), kBatch * SumOf(claimed.all)) << name << " " << of;
        for (const GridBits& level : levels) {
          const double said = kBatch * EffectiveMacs(claimed.all, parsed, level).sum();
          EXPECT_NEAR(macs.At(level) / said, 1, 1e-9) << name << " " << of << " " << integers;
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 80);
}

// A new family says what its products have, or belongs to those that cannot.
TEST(EffectiveMacs, EachFamilyIsKnown) {
  for (const RecipeFamily& family : RecipeFamilies()) {
    const bool cannot = family.name == "fp32" || family.name == "afp";
    EXPECT_EQ(family.operands == nullptr, cannot) << family.name;
  }
}

}  // namespace
}  // namespace runnel::effective_macs_test
