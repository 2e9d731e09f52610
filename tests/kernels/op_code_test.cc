// Whether the rows of op_traits.inc say what compiled programs do.

#include "kernels/ir/op_code.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/recipe.h"
#include "partition/zoo/zoo.h"

namespace runnel::op_code_test {
namespace {

TEST(OpTraits, CountsOperandsAndMarksThoseThatAreReadAndWritten) {
  const OpTraits& norm = TraitsOf(OpCode::kBatchNormForward);
  EXPECT_EQ(norm.min_inputs, 3);
  EXPECT_EQ(norm.max_outputs, 4);
  EXPECT_FALSE(norm.ReadsOutput(0));
  EXPECT_FALSE(norm.ReadsOutput(1));
  EXPECT_TRUE(norm.ReadsOutput(2));
  EXPECT_TRUE(norm.ReadsOutput(3));
  const OpTraits& product = TraitsOf(OpCode::kInt8ConvForwardRescaled);
  EXPECT_EQ(product.min_inputs, 2);
  EXPECT_EQ(product.max_inputs, 3);
  EXPECT_EQ(product.min_outputs, 1);
  EXPECT_EQ(product.max_outputs, 2);
  EXPECT_TRUE(product.ReadsOutput(1));
  const OpTraits& update = TraitsOf(OpCode::kOptimizerUpdate);
  EXPECT_FALSE(update.WritesInput(1));
  EXPECT_TRUE(update.WritesInput(2));
  EXPECT_FALSE(update.ReadsOutput(0));
}

TEST(OpTraits, NamesAreUniqueAndOneBehindTheLastIsNone) {
  std::set<absl::string_view> names;
  for (int i = 0; i < OpCodeCount(); ++i)
    EXPECT_TRUE(names.insert(Name(static_cast<OpCode>(i))).second) << i;
  EXPECT_EQ(names.count("?"), 0u);
  EXPECT_EQ(Name(static_cast<OpCode>(OpCodeCount())), "?");
}

void ExpectFits(const Program& program, const Instruction& instruction, Part part) {
  const OpTraits& traits = TraitsOf(instruction.code);
  const auto inputs = static_cast<int>(instruction.inputs.size());
  const auto outputs = static_cast<int>(instruction.outputs.size());
  ASSERT_TRUE(inputs >= traits.min_inputs && inputs <= traits.max_inputs) << traits.name;
  ASSERT_TRUE(outputs >= traits.min_outputs && outputs <= traits.max_outputs) << traits.name;
  if (traits.part == Part::kForwardEval) {
    ASSERT_EQ(part, Part::kForwardEval) << traits.name;
  }
  for (size_t i = 0; i < instruction.outputs.size(); ++i) {
    const Buffer& output = program.buffers[static_cast<size_t>(instruction.outputs[i])];
    if (output.storage == Storage::kStatistics) {
      ASSERT_TRUE(traits.ReadsOutput(i)) << traits.name << " output " << i;
    }
  }
  for (size_t i = 0; i < instruction.inputs.size(); ++i) {
    const Storage storage = program.buffers[static_cast<size_t>(instruction.inputs[i])].storage;
    ASSERT_EQ(traits.WritesInput(i), storage == Storage::kSlots) << traits.name;
  }
  if (traits.is_product()) {
    const Shape& weight = ShapeOf(program, instruction, traits.shapes.weight);
    const Shape& y = ShapeOf(program, instruction, traits.shapes.y);
    ASSERT_EQ(weight.elements() % y[1], 0) << traits.name << ": one filter a channel of y";
  }
}

TEST(OpTraits, FitEveryProgramOfTheZoo) {
  std::set<OpCode> seen;
  for (const char* name : {"lenet", "vgg11", "resnet18", "mobilenet_v2"}) {
    const ModelSpec model = *MakeModel(name);
    for (const char* recipe_name :
         {"fp32", "niti", "dorefa:2,2,4", "sbm:2,2,4", "sbm_range:8,8,8", "ui8", "mls:2,1", "octo",
          "octo_lac", "afp", "wageubn", "fp8_chunk"}) {
      const Recipe& recipe = **FindRecipe(recipe_name);
      for (const bool fuses : {false, true}) {
        SCOPED_TRACE(absl::StrCat(name, " ", recipe_name, fuses ? " fused" : ""));
        CompileOptions options = {.max_batch = 2, .recomputes = fuses};
        options.rescales_in_products = fuses;
        if (fuses) options.rescale.mode = RescaleMode::kAdaptive;
        const auto program = CompileStage(model, 0, model.layer_count() - 1, 2, recipe, options);
        if (!program.ok()) continue;  // a model that the recipe cannot train
        for (int part = 0; part < kPartCount; ++part) {
          for (const Instruction& instruction : program->parts[part]) {
            seen.insert(instruction.code);
            ExpectFits(*program, instruction, static_cast<Part>(part));
          }
        }
      }
    }
  }
  EXPECT_GT(seen.size(), 45u);
}

}  // namespace
}  // namespace runnel::op_code_test
