// Products of codes in whole programs: which there are, and that runs agree.

#include "kernels/ir/passes/integer_products.h"

#include <algorithm>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/recipe.h"
#include "partition/plan_builder.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "proto/base/training/dials/precision.h"
#include "proto/base/training/precision/code_families.h"
#include "tests/kernels/grid_training.h"

namespace runnel::integer_products_test {
namespace {

// How many products of each kind of numbers the training has.
std::map<std::string, int> ProductsOf(const ModelSpec& model, const char* name,
                                      bool integers = true) {
  const Recipe& recipe = **FindRecipe(name);
  const auto program = CompileStage(model, 0, model.layer_count() - 1, 4, recipe,
                                    {.max_batch = 4, .integer_products = integers});
  EXPECT_TRUE(program.ok()) << program.status();
  std::map<std::string, int> counts;
  for (const Part part : {Part::kForward, Part::kInputGradient, Part::kWeightGradient}) {
    for (const Instruction& one : program->part(part)) {
      const std::string numbers(ProductNumbers(recipe, one));
      if (!numbers.empty()) ++counts[numbers];
    }
  }
  return counts;
}

TEST(IntegerProducts, TheRecipeAndTheOperatorDecide) {
  using testing::Pair;
  using testing::UnorderedElementsAre;
  // Four operators, of which the first has no input-gradient.
  const ModelSpec lenet = *MakeModel("lenet");
  EXPECT_THAT(ProductsOf(lenet, "sbm:8,8,8"), UnorderedElementsAre(Pair("int8", 11)));
  EXPECT_THAT(ProductsOf(lenet, "sbm:4,3,12"),
              UnorderedElementsAre(Pair("int8", 4), Pair("int16", 7)));
  EXPECT_THAT(ProductsOf(lenet, "sbm:8,8,8", false), UnorderedElementsAre(Pair("emulated", 11)));
  // The weight-gradient reads gradients of 16 bits.
  EXPECT_THAT(ProductsOf(lenet, "sbm_range:8,8,8"),
              UnorderedElementsAre(Pair("int8", 7), Pair("int16", 4)));
  // The first and the last operator are FP32, and all that is no convolution.
  EXPECT_THAT(ProductsOf(lenet, "ui8"), UnorderedElementsAre(Pair("int8", 6), Pair("emulated", 5)));
  for (const char* octo : {"octo", "octo_lac"})
    EXPECT_THAT(ProductsOf(lenet, octo),
                UnorderedElementsAre(Pair("int8", 5), Pair("emulated", 6)));
  for (const char* other : {"dorefa:8,8,8", "mls:2,4", "afp", "wageubn", "fp8_chunk"})
    EXPECT_THAT(ProductsOf(lenet, other), UnorderedElementsAre(Pair("emulated", 11))) << other;
  EXPECT_THAT(ProductsOf(lenet, "fp32"), testing::IsEmpty());
  // 17 depthwise convolutions, whose gradients have 16 bits, among 53 operators.
  EXPECT_THAT(ProductsOf(*MakeModel("mobilenet_v2"), "sbm:8,8,8"),
              UnorderedElementsAre(Pair("int16", 2 * 17), Pair("int8", 3 * 53 - 1 - 2 * 17)));
}

// What central knows of a family without compiling.
TEST(IntegerProducts, TheListOfFamiliesIsWhatProgramsHave) {
  const ModelSpec lenet = *MakeModel("lenet");
  int families = 0;
  for (const char* name : {"fp32", "dorefa:8,8,8", "sbm:8,8,8", "sbm_range:8,8,8", "ui8", "octo",
                           "octo_lac", "mls:2,4", "afp", "wageubn", "fp8_chunk", "bf16", "fp16"}) {
    ++families;
    EXPECT_EQ(MultipliesCodes(*ParseRecipeName(name)->family),
              ProductsOf(lenet, name).count("int8") > 0)
        << name;
  }
  EXPECT_EQ(families + 1u, RecipeFamilies().size()) << "and niti";
}

ModelSpec Dilated() {
  const auto conv = [](int64_t channels, int64_t groups, int64_t dilation) {
    return OpSpec{.kind = OpKind::kConv,
                  .inputs = {0},
                  .out_channels = channels,
                  .kernel = {3, 3},
                  .stride = {1, groups == 1 ? 2 : 1},
                  .padding = {1, 2},
                  .groups = groups,
                  .padding_end = {2, 1},
                  .dilation = {dilation, dilation}};
  };
  const auto op = [](OpKind kind) { return OpSpec{.kind = kind, .inputs = {0}}; };
  ModelSpec model{"dilated", {3, 12, 12}, 4, {}};
  model.layers = {{"a", {conv(6, 1, 2)}},
                  {"b", {op(OpKind::kRelu)}},
                  {"c", {conv(6, 6, 2)}},
                  {"d", {conv(8, 2, 3)}},
                  {"e", {conv(8, 8, 1)}},
                  {"f", {op(OpKind::kFlatten)}},
                  {"g", {{.kind = OpKind::kLinear, .inputs = {0}, .out_channels = 4}}}};
  return model;
}

TEST(IntegerProducts, OfTapsThatLieApart) {
  const ModelSpec model = Dilated();
  for (const char* name : {"sbm:8,8,8", "sbm:8,8,12", "sbm_range:8,8,8"}) {
    EXPECT_EQ(ProductsOf(model, name).count("emulated"), 0u) << name;
    const Trained codes = TrainOnGrids({.model = model, .recipe = name, .count = 2});
    const Trained on_ref =
        TrainOnGrids({.model = model, .backend = "ref", .recipe = name, .count = 2});
    ASSERT_EQ(codes.losses.size(), 2u) << name;
    for (size_t i = 0; i < codes.losses.size(); ++i)
      EXPECT_NEAR(codes.losses[i], on_ref.losses[i], 1e-2 * on_ref.losses[i]) << name;
  }
}

// How many products of codes the evaluation has. Its operands have no other readers, whatever those of
// the training have.
int64_t CodesInEvaluation(const char* name) {
  const ModelSpec model = *MakeModel("lenet");
  const auto program = CompileStage(model, 0, model.layer_count() - 1, 4, **FindRecipe(name),
                                    {.max_batch = 4, .integer_products = true});
  EXPECT_TRUE(program.ok()) << program.status();
  const auto& part = program->part(Part::kForwardEval);
  return std::count_if(part.begin(), part.end(),
                       [](const Instruction& one) { return one.code == OpCode::kCodesForward; });
}

TEST(IntegerProducts, EvaluationHasThoseOfTheRecipe) {
  EXPECT_EQ(CodesInEvaluation("sbm:8,8,8"), 4);
  EXPECT_EQ(CodesInEvaluation("sbm_range:8,8,8"), 4);
  EXPECT_EQ(CodesInEvaluation("ui8"), 2);
  EXPECT_EQ(CodesInEvaluation("octo"), 2);
  EXPECT_EQ(CodesInEvaluation("dorefa:8,8,8"), 0);
}

// What is stashed are the codes: a quarter of the floats.
TEST(IntegerProducts, CodesAreStashed) {
  const ModelSpec model = *MakeModel("vgg11");
  const auto stash = [&](bool integers) {
    return CompileStage(model, 0, model.layer_count() - 1, 4, **FindRecipe("sbm:8,8,8"),
                        {.max_batch = 4, .integer_products = integers})
        ->stash_bytes;
  };
  EXPECT_LT(stash(true), stash(false));
}

// Bytes that a plan counts for what `layers` keep of a micro-batch.
int64_t PlannedStash(const ModelSpec& model, const char* recipe, int first, int last,
                     int64_t samples) {
  const RecipeName name = *ParseRecipeName(recipe);
  PlanRequest request;
  request.model = &model;
  request.devices = {DeviceId(0)};
  request.format = name.family->format;
  request.recipe_memory = MemoryOf(name, {});
  request.micro_batch_size = samples;
  request.codecs.encoded_forward = request.codecs.encoded_backward = [](const Shape& shape) {
    return Bytes(4 * shape.elements());
  };
  const auto planned = MakePipelineModel(request);
  EXPECT_TRUE(planned.ok()) << planned.status();
  int64_t bytes = 0;
  for (int layer = first; layer <= last; ++layer)
    bytes += planned->memory[static_cast<size_t>(layer)].stash_bytes;
  return bytes;
}

// Planned over stashed bytes of these layers, as `cpu` compiles them.
double PlannedShare(const ModelSpec& model, const char* recipe, int first, int last) {
  const auto program = CompileStage(
      model, first, last, 32, **FindRecipe(recipe),
      {.max_batch = 32, .recomputes = true, .integer_products = true, .masks_stash = true});
  EXPECT_TRUE(program.ok()) << program.status();
  const int64_t output = program->backward_reads_output ? program->output_bytes : 0;
  return static_cast<double>(PlannedStash(model, recipe, first, last, 32)) /
         static_cast<double>(program->stash_bytes + output);
}

TEST(IntegerProducts, PlansCountWhatProgramsStash) {
  for (const char* recipe : {"sbm:8,8,8", "sbm:4,4,6", "sbm_range:8,8,8", "ui8"}) {
    for (const char* name : {"lenet", "vgg11", "vgg11_bn", "resnet8", "resnet38", "mobilenet_v2",
                             "mobilenet_v3_small"}) {
      const absl::StatusOr<ModelSpec> model = MakeModel(name);
      ASSERT_TRUE(model.ok()) << model.status();
      const int last = model->layer_count() - 1;
      for (const auto& [begin, end] :
           {std::pair(0, last), std::pair(0, last / 2), std::pair(last / 3, last)})
        EXPECT_NEAR(PlannedShare(*model, recipe, begin, end), 1, 0.03)
            << recipe << " " << name << " " << begin << ".." << end;
    }
  }
}

// Products beside gates are those of codes, too.
TEST(IntegerProducts, PlansCountWhatProgramsStashBesideGates) {
  const char* recipe = "sbm:8,8,8";
  for (const char* name : {"resnet8", "resnet20", "mobilenet_v2"}) {
    for (const char* gates : {"ff:0,8/8,8@hold:0.5", "ff:0,4,32/8,8,32@hold:0.5",
                              "ff:0,3,4,6/6,6,8,12", "lstm:0,4,8/8,8,8"}) {
      const ModelSpec model = *AddGates(*MakeModel(name), gates);
      const int last = model.layer_count() - 1;
      EXPECT_NEAR(PlannedShare(model, recipe, 0, last), 1, 0.01) << name << " " << gates;
      if (*gates == 'l') continue;  // a state would need its row beside the boundary
      EXPECT_NEAR(PlannedShare(model, recipe, last / 3, last), 1, 0.01) << name << " " << gates;
    }
  }
}

TEST(IntegerProducts, PlansCountNoCodesOfOtherRecipes) {
  // Octo rounds inputs anew in the backward, and keeps them as they are.
  for (const char* other : {"fp32", "dorefa:8,8,8", "octo"})
    EXPECT_EQ(ParseRecipeName(other)->family->memory.kept_codes, KeptCodes::kNone) << other;
}

TEST(IntegerProducts, CutsAndUpdatesInTheBackwardChangeNoByte) {
  for (const char* name : {"lenet", "resnet8"}) {
    Training training = {.model = *MakeModel(name), .levels = {{3, 6}, {8, 8}, {8, 12}}};
    const Trained whole = TrainOnGrids(training);
    training.steps = Steps::kAlone;
    EXPECT_EQ(TrainOnGrids(training).parameters, whole.parameters) << name;
    training.steps = Steps::kApart;
    const int layers = training.model.layer_count();
    training.cuts = {layers / 3, 2 * layers / 3};
    EXPECT_EQ(TrainOnGrids(training).parameters, whole.parameters) << name;
  }
}

// Products have the same bytes; what is floats around them is rounded by each backend its way.
TEST(IntegerProducts, LossesAreThoseOfRef) {
  const ModelSpec model = *MakeModel("lenet");
  const Trained codes = TrainOnGrids({.model = model, .count = 2});
  const Trained on_ref = TrainOnGrids({.model = model, .backend = "ref", .count = 2});
  for (size_t i = 0; i < codes.losses.size(); ++i)
    EXPECT_NEAR(codes.losses[i], on_ref.losses[i], 1e-2 * on_ref.losses[i]) << i;
}

}  // namespace
}  // namespace runnel::integer_products_test
