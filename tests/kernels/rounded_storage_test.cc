// What CompileOptions::stash makes of programs.

#include <algorithm>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "kernels/ir/compiler.h"
#include "partition/zoo/zoo.h"
#include "tests/kernels/random_model.h"

namespace runnel::rounded_storage_test {
namespace {

Program Compile(const ModelSpec& model, int first, int last, int64_t batch, bool stores_halves,
                const char* recipe = "fp32") {
  const CompileOptions options = {.max_batch = batch,
                                  .stash = stores_halves ? DType::kFloat16 : DType::kFloat32};
  auto program = CompileStage(model, first, last, batch, **FindRecipe(recipe), options);
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}

Program Whole(const ModelSpec& model, bool stores_halves, const char* recipe = "fp32") {
  return Compile(model, 0, model.layer_count() - 1, 16, stores_halves, recipe);
}

struct Sizes {
  int64_t stash_bytes = 0;
  int64_t scratch_bytes = 0;
};

void ExpectSizes(const char* model, const Sizes& floats, const Sizes& halves) {
  for (const bool stores_halves : {false, true}) {
    const Program program = Whole(*MakeModel(model), stores_halves);
    const Sizes& want = stores_halves ? halves : floats;
    EXPECT_EQ(program.stash_bytes, want.stash_bytes) << model << " " << stores_halves;
    EXPECT_EQ(program.scratch_bytes, want.scratch_bytes) << model << " " << stores_halves;
  }
}

// Batch 16. Places in pooling windows, a byte each, do not halve. Gradients, which lie in parts of
// the stash that the backward no longer needs, find half the room there and the rest in the
// scratch, which a stage has once.
TEST(RoundedStorage, TheStashHalves) {
  ExpectSizes("vgg11", {4203136, 10747904}, {2351744, 10747904});
  ExpectSizes("resnet18", {75044992, 19402752}, {37542016, 42995712});
  ExpectSizes("mobilenet_v2", {17663872, 5776896}, {8900480, 8443904});
}

// Of what the forward writes and the backward reads.
void ExpectOnlyStatisticsInFp32(const Program& program) {
  std::set<BufferIndex> statistics;
  for (const Instruction& instruction : program.part(Part::kForward)) {
    const bool has_statistics = instruction.code == OpCode::kBatchNormForward ||
                                instruction.code == OpCode::kLayerNormForward ||
                                instruction.code == OpCode::kAttentionForward;
    const bool is_loss = instruction.code == OpCode::kSoftmaxCrossEntropy;
    if (has_statistics) statistics.insert(instruction.outputs[1]);
    if (is_loss) statistics.insert(instruction.outputs[0]);
  }
  std::set<BufferIndex> written;
  for (const Instruction& instruction : program.part(Part::kForward))
    written.insert(instruction.outputs.begin(), instruction.outputs.end());
  for (Part part : {Part::kInputGradient, Part::kWeightGradient}) {
    for (const Instruction& instruction : program.part(part)) {
      for (BufferIndex input : instruction.inputs) {
        const Buffer& buffer = program.buffers[static_cast<size_t>(input)];
        if (written.count(input) == 0 || statistics.count(input) > 0) continue;
        EXPECT_TRUE(buffer.dtype != DType::kFloat32 || buffer.storage == Storage::kOutput)
            << Name(instruction.code) << " " << instruction.layer << "." << instruction.op;
      }
    }
  }
}

TEST(RoundedStorage, WhatTheBackwardReadsIsHalvesAndNoStashIsLarger) {
  for (const char* recipe : {"fp32", "dorefa:4,4,8"}) {
    std::vector<ModelSpec> models;
    for (const std::string& name : ModelNames()) models.push_back(*MakeModel(name));
    for (uint64_t seed = 1; seed <= 100; ++seed) models.push_back(RandomModel(seed));
    for (size_t i = 0; i < models.size(); ++i) {
      SCOPED_TRACE(testing::Message() << models[i].name << " " << i << " " << recipe);
      const Program halves = Whole(models[i], true, recipe),
                    floats = Whole(models[i], false, recipe);
      ExpectOnlyStatisticsInFp32(halves);
      EXPECT_LE(halves.stash_bytes, floats.stash_bytes);
      // Gradients find fewer gaps in a small stash; in a random net that may cost more than it
      // saves.
      const bool is_random = models[i].name.rfind("random", 0) == 0;
      EXPECT_LE(halves.stash_bytes + halves.scratch_bytes,
                (is_random ? 2 : 1) * (floats.stash_bytes + floats.scratch_bytes));
    }
  }
}

// Boundary tensors, gradients and evaluation.
TEST(RoundedStorage, WhatLeavesIsFp32OfTheValuesOfHalvesButForTheLogits) {
  const ModelSpec model = *MakeModel("resnet18");
  for (int first = 0; first < model.layer_count(); ++first) {
    const Program program = Compile(model, first, first, 4, true);
    for (const Buffer& buffer : program.buffers) {
      const bool is_halves = buffer.dtype == DType::kFloat16;
      EXPECT_FALSE(is_halves && buffer.storage != Storage::kStash &&
                   buffer.storage != Storage::kScratch);
      EXPECT_TRUE(!buffer.is_rounded() || buffer.storage == Storage::kOutput);
    }
    bool is_rounded = false;
    for (const Instruction& instruction : program.part(Part::kForward)) {
      for (BufferIndex output : instruction.outputs)
        is_rounded |= program.buffers[static_cast<size_t>(output)].is_rounded();
    }
    EXPECT_EQ(is_rounded, !program.has_loss);
    for (const Instruction& instruction : program.part(Part::kForwardEval)) {
      for (BufferIndex input : instruction.inputs)
        EXPECT_NE(program.buffers[static_cast<size_t>(input)].dtype, DType::kFloat16);
    }
    for (Part part : {Part::kInputGradient, Part::kWeightGradient}) {
      for (const Instruction& instruction : program.part(part)) {
        for (BufferIndex output : instruction.outputs)
          EXPECT_NE(program.buffers[static_cast<size_t>(output)].dtype, DType::kFloat16);
      }
    }
  }
}

TEST(RoundedStorage, WhatTheBackwardMakesAgainIsRoundedAlike) {
  OpSpec conv = OpOf(OpKind::kConv, {0});
  conv.out_channels = 2;
  const ModelSpec model = ModelOf({2, 1, 1}, 4,
                                  {{conv, OpOf(OpKind::kBatchNorm, {1}), OpOf(OpKind::kRelu, {2})},
                                   {OpOf(OpKind::kFlatten, {0}), LinearOp(4, {1})}});
  for (const int last_layer : {0, 1}) {
    const CompileOptions options = {.max_batch = 4, .recomputes = true, .stash = DType::kFloat16};
    const Program program =
        CompileStage(model, 0, last_layer, 4, **FindRecipe("fp32"), options).value();
    int made_again = 0;
    for (const Instruction& instruction : program.part(Part::kInputGradient)) {
      if (instruction.code != OpCode::kReluForward) continue;
      const Buffer& output = program.buffers[static_cast<size_t>(instruction.outputs[0])];
      EXPECT_TRUE(last_layer == 0 ? output.is_rounded() : output.dtype == DType::kFloat16);
      ++made_again;
    }
    EXPECT_EQ(made_again, 1) << last_layer;
  }
}

// The samples as they come are no activation, nor is a view of them.
TEST(RoundedStorage, RawSamplesAreNotRounded) {
  const ModelSpec model = ModelOf({2, 3, 3}, 4, {{OpOf(OpKind::kFlatten, {0})}, {LinearOp(4)}});
  for (const Program& program : {Whole(model, true), Compile(model, 0, 0, 4, true)}) {
    for (const Buffer& buffer : program.buffers)
      EXPECT_TRUE(buffer.dtype != DType::kFloat16 && !buffer.is_rounded());
  }
}

TEST(RoundedStorage, ProgramsOfIntegersAreTheSame) {
  const ModelSpec model = *MakeModel("vgg11");
  EXPECT_EQ(ToString(Whole(model, true, "niti")), ToString(Whole(model, false, "niti")));
}

}  // namespace
}  // namespace runnel::rounded_storage_test
