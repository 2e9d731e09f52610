// Recipes as data: what is refused, what the compiler makes of the integer one.

#include "kernels/ir/recipe.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/ref/ref_backend.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/memory_plan.h"
#include "kernels/ir/passes/commute_pools.h"
#include "kernels/ir/passes/fold_relu.h"
#include "kernels/ir/stage/stage_builder.h"
#include "tests/kernels/integer_pipeline.h"
#include "tests/kernels/random_model.h"

namespace runnel::recipe_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Recipes, BrokenRowsAreRefused) {
  const auto message = [](const Recipe& recipe) {
    return std::string(CheckRecipe(recipe).message());
  };
  Recipe recipe = **FindRecipe("niti");
  std::vector<OpRule>& rules = recipe.rules;
  ASSERT_EQ(message(recipe), "");

  rules[0].forward = static_cast<OpCode>(250);
  EXPECT_THAT(message(recipe), AllOf(HasSubstr("conv"), HasSubstr("not known")));
  rules[0] = (**FindRecipe("niti")).rules[0];
  rules[0].rescale_forward = false;  // a 32-bit sum as an activation
  EXPECT_THAT(message(recipe), AllOf(HasSubstr("int8_conv_forward"), HasSubstr("rescaling")));
  rules[0] = (**FindRecipe("niti")).rules[0];
  rules[1].op = OpKind::kConv;
  EXPECT_THAT(message(recipe), HasSubstr("two rules"));
  rules[1] = (**FindRecipe("niti")).rules[1];
  rules[2].saved = Saved::kInputAndStats;
  EXPECT_THAT(message(recipe), AllOf(HasSubstr("relu"), HasSubstr("statistics")));
  rules[2] = (**FindRecipe("niti")).rules[2];

  recipe.update.reset();
  EXPECT_THAT(message(recipe), HasSubstr("update"));
  recipe = **FindRecipe("niti");
  recipe.quantize.reset();
  EXPECT_THAT(message(recipe), HasSubstr("raw samples"));
  recipe = **FindRecipe("niti");
  recipe.gradient_rounding = Rounding::kStochastic;
  EXPECT_THAT(message(recipe), HasSubstr("stochastic"));
  recipe = **FindRecipe("fp32");
  recipe.numbers.parameter = DType::kInt8;
  EXPECT_NE(message(recipe), "");
  recipe = **FindRecipe("fp32");
  recipe.numbers.error = DType::kInt8;
  EXPECT_THAT(message(recipe), HasSubstr("both integers or both floats"));
}

// Of a stage in the middle, with a value that two operators read.
TEST(Recipes, GradientsAreOfTheErrorsType) {
  const auto conv = [](int32_t input) {
    OpSpec op = OpOf(OpKind::kConv, {input});
    op.out_channels = 8;
    op.kernel = {3, 3};
    op.padding = {1, 1};
    return op;
  };
  const ModelSpec model =
      ModelOf({4, 9, 9}, 3,
              {{conv(0)},
               {conv(0), OpOf(OpKind::kRelu, {1}), conv(2), OpOf(OpKind::kAdd, {2, 3})},
               {OpOf(OpKind::kGlobalAvgPool, {0}), LinearOp(3, {1})}});
  Recipe recipe = **FindRecipe("fp32");
  recipe.numbers.error = DType::kFloat16;
  ASSERT_TRUE(CheckRecipe(recipe).ok());
  const auto program = CompileStage(model, 1, 1, 5, recipe);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->input_gradient_bytes, program->input_bytes / 2);
  EXPECT_EQ(program->output_gradient_bytes, program->output_bytes / 2);
  const auto type = [&](BufferIndex index) { return program->buffers[index].dtype; };
  for (const Instruction& instruction : program->part(Part::kInputGradient))
    EXPECT_EQ(type(instruction.outputs[0]), DType::kFloat16) << Name(instruction.code);
  for (const Instruction& instruction : program->part(Part::kWeightGradient)) {
    EXPECT_EQ(type(instruction.inputs[0]), DType::kFloat16);
    EXPECT_EQ(type(instruction.outputs[0]), DType::kFloat32);
  }
  for (const Instruction& instruction : program->part(Part::kForward))
    EXPECT_EQ(type(instruction.outputs[0]), DType::kFloat32);
}

TEST(Recipes, ModelsThatCannotBeTrainedAreRefused) {
  const auto message = [](std::vector<OpSpec> ops) {
    const ModelSpec model = ModelOf(
        {4, 9, 9}, 3, {std::move(ops), {OpOf(OpKind::kGlobalAvgPool, {0}), LinearOp(3, {1})}});
    return std::string(CheckModel(**FindRecipe("niti"), model).message());
  };
  EXPECT_THAT(message({OpOf(OpKind::kBatchNorm, {0})}),
              AllOf(HasSubstr("l0"), HasSubstr("batch_norm"), HasSubstr("not normalised")));
  EXPECT_THAT(message({OpOf(OpKind::kRelu6, {0})}), HasSubstr("relu6"));
  OpSpec linear = LinearOp(3);
  linear.bias = true;
  EXPECT_THAT(message({linear}), AllOf(HasSubstr("linear"), HasSubstr("bias")));
  OpSpec dropout = OpOf(OpKind::kDropout, {0});
  dropout.rate = 0.3;
  EXPECT_THAT(message({dropout}), HasSubstr("not 0.5"));
  dropout.rate = 0.5;
  EXPECT_EQ(message({dropout}), "");
  OpSpec pool = OpOf(OpKind::kAvgPool, {0});
  pool.kernel = {3, 3};
  pool.stride = {2, 2};
  EXPECT_THAT(message({pool}), HasSubstr("overlap"));
  pool.stride = {3, 3};
  EXPECT_EQ(message({pool}), "");
  pool.padding_end = {1, 0};
  EXPECT_THAT(message({pool}), HasSubstr("whole windows alone"));
  OpSpec conv = ConvOp(4, {3, 1, 1});
  conv.padding_end = {2, 0};
  EXPECT_EQ(message({conv}), "");
  conv.dilation = {1, 2};
  EXPECT_THAT(message({conv}), HasSubstr("no dilated products"));
  OpSpec slice = OpOf(OpKind::kSlice, {0});
  slice.out_channels = 2;
  EXPECT_THAT(message({slice}), HasSubstr("channels are not parted"));
}

TEST(Recipes, WeightsAndGradientsAreLaidOutByRecipe) {
  OpSpec conv = OpOf(OpKind::kConv, {0});
  conv.out_channels = 5;
  conv.kernel = {3, 3};
  const ModelSpec model = ModelOf({2, 20, 20}, 5, {{conv, OpOf(OpKind::kGlobalAvgPool, {1})}});
  const auto layout = [&](const CompileOptions& options) {
    return *PlanState(model, 0, 0, **FindRecipe("niti"), options);
  };
  const StateLayout narrow = layout({.max_batch = 64});
  ASSERT_EQ(narrow.tensors.size(), 2u);
  EXPECT_EQ(narrow.tensors[0].spec.dtype, DType::kInt8);
  EXPECT_TRUE(narrow.tensors[0].channels_last);
  EXPECT_EQ(narrow.tensors[1].spec.role, TensorRole::kExponent);
  EXPECT_EQ(narrow.tensors[1].offset_bytes, 128);  // 90 mantissas, rounded up
  EXPECT_EQ(narrow.parameter_bytes, 192);
  EXPECT_EQ(narrow.slot_bytes, 0);
  EXPECT_EQ(narrow.tensors[0].gradient_dtype, DType::kInt32);
  // 412 * 18 * 18 products pass what an int32 holds.
  EXPECT_EQ(layout({.max_batch = 410}).tensors[0].gradient_dtype, DType::kInt32);
  EXPECT_EQ(layout({.max_batch = 411}).tensors[0].gradient_dtype, DType::kInt64);
  EXPECT_EQ(layout({.accumulates_gradients = true, .max_batch = 1}).tensors[0].gradient_dtype,
            DType::kInt64);
}

// conv-relu-pool-conv-relu-linear.
ModelSpec ReluModel() {
  OpSpec conv = OpOf(OpKind::kConv, {0});
  conv.out_channels = 6;
  conv.kernel = {3, 3};
  OpSpec pool = OpOf(OpKind::kMaxPool, {2});
  pool.kernel = pool.stride = {2, 2};
  OpSpec second = conv;
  second.inputs = {3};
  return ModelOf({2, 12, 12}, 4,
                 {{conv, OpOf(OpKind::kRelu, {1}), pool, second, OpOf(OpKind::kRelu, {4}),
                   OpOf(OpKind::kFlatten, {5}), LinearOp(9, {6}), OpOf(OpKind::kRelu, {7})},
                  {LinearOp(4)}});
}

TEST(FoldRelu, LeavesNoReluBehindProducts) {
  // conv1's ReLU runs on the pooled tensor (CommutePools), the others in the rescaling.
  const std::string text = ToString(*CompileStage(ReluModel(), 0, 1, 3, **FindRecipe("niti")));
  const size_t relu = text.find("int8_relu_forward");
  ASSERT_NE(relu, std::string::npos);
  EXPECT_GT(relu, text.find("int8_max_pool_forward"));
  // Of the masks only the one behind the flatten's copy stands alone.
  int masks = 0;
  for (size_t at = 0; (at = text.find("int8_relu_input_gradient", at)) != std::string::npos; ++at) {
    ++masks;
  }
  EXPECT_EQ(masks, 1);
}

// Runs an integer program as one stage and gives the bytes of all that lasts.
std::string TrainedBytes(Program program) {
  auto backend = *MakeRefBackend(1);
  auto executable = *backend->Prepare(program);
  const int64_t sizes[kStorageCount] = {program.input_bytes,
                                        program.output_bytes,
                                        program.output_bytes,
                                        program.input_bytes,
                                        64,
                                        64,
                                        program.state.parameter_bytes,
                                        program.state.parameter_bytes,
                                        program.state.gradient_bytes,
                                        0,
                                        0,
                                        program.stash_bytes,
                                        program.scratch_bytes};
  std::vector<AlignedBytes> memory;
  Bindings bindings;
  for (int i = 0; i < kStorageCount; ++i) memory.emplace_back(sizes[i]);
  for (int i = 0; i < kStorageCount; ++i) bindings.base[i] = memory[i].data();
  const std::vector<int8_t> weights = GoldenMantissas(3, program.state.parameter_bytes);
  std::memcpy(bindings[Storage::kParameters], weights.data(), weights.size());
  for (const StateTensor& t : program.state.tensors) {
    if (t.spec.role != TensorRole::kWeight) continue;
    TailOf(bindings[Storage::kParameters] + t.offset_bytes, DType::kInt8,
           t.spec.shape) = {.exponent = -8};
  }
  const std::vector<float> x = RandomValues(1, 1, program.input.elements());
  std::memcpy(bindings[Storage::kInput], x.data(), x.size() * sizeof(float));
  std::string bytes;
  for (Part part : {Part::kForward, Part::kInputGradient, Part::kWeightGradient, Part::kUpdate}) {
    EXPECT_TRUE(executable->Run(part, {}, bindings).ok());
    for (Storage storage : {Storage::kOutput, Storage::kGradients, Storage::kNewParameters}) {
      bytes.append(reinterpret_cast<const char*>(bindings[storage]),
                   static_cast<size_t>(sizes[static_cast<int>(storage)]));
    }
  }
  return bytes;
}

TEST(FoldRelu, ChangesNoByte) {
  const ModelSpec model = ReluModel();
  const CompileOptions options = {.max_batch = 3};
  const auto infos = *InferShapes(model, 3);
  const auto draft = [&] { return *DraftStage(model, infos, 0, 1, **FindRecipe("niti"), options); };
  StageDraft plain = draft(), folded = draft();
  FoldRelu(folded);
  ASSERT_LT(folded.program.part(Part::kForward).size(), plain.program.part(Part::kForward).size());
  ASSERT_LT(folded.program.part(Part::kInputGradient).size(),
            plain.program.part(Part::kInputGradient).size());
  for (StageDraft* d : {&plain, &folded})
    PlanMemory(d->placed, /*one_in_flight=*/false, d->program);
  EXPECT_EQ(TrainedBytes(plain.program), TrainedBytes(folded.program));
}

TEST(CommutePools, ChangesNoByteAndStashesLess) {
  const ModelSpec model = ReluModel();
  const ModelSpec commuted = CommutePools(model);
  ASSERT_FALSE(commuted == model);
  EXPECT_EQ(commuted.layers[0].ops[1].kind, OpKind::kMaxPool);
  const auto program = [&](const ModelSpec& m) {
    StageDraft draft =
        *DraftStage(m, *InferShapes(m, 3), 0, 1, **FindRecipe("niti"), {.max_batch = 3});
    PlanMemory(draft.placed, /*one_in_flight=*/false, draft.program);
    return std::move(draft.program);
  };
  const Program plain = program(model), better = program(commuted);
  EXPECT_LT(better.stash_bytes, plain.stash_bytes);
  EXPECT_EQ(TrainedBytes(plain), TrainedBytes(better));
}

TEST(CommutePools, LeavesAloneWhatOthersReadOrNormalise) {
  OpSpec pool = OpOf(OpKind::kMaxPool, {1});
  pool.kernel = pool.stride = {2, 2};
  // The ReLU is added to a later value.
  const ModelSpec read_twice =
      ModelOf({2, 4, 4}, 3, {{OpOf(OpKind::kRelu, {0}), pool, OpOf(OpKind::kRelu, {1})}});
  EXPECT_EQ(CommutePools(read_twice), read_twice);
  pool.inputs = {2};
  const ModelSpec normalised =
      ModelOf({2, 4, 4}, 3, {{OpOf(OpKind::kBatchNorm, {0}), OpOf(OpKind::kRelu, {1}), pool}});
  EXPECT_EQ(CommutePools(normalised), normalised);
}

}  // namespace
}  // namespace runnel::recipe_test
