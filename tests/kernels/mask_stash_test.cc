// What the stash keeps in place of values: bits of ReLUs, pairs of codes, codes of what enters layers
// that are made again.

#include "kernels/ir/passes/mask_stash.h"

#include <memory>
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
#include "tests/kernels/op_harness.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/whole_values.h"

namespace runnel::mask_stash_test {
namespace {

const std::string kCap = CpuInstructionSets().front();

struct Result {
  std::vector<std::vector<float>> parameters;
  int64_t stash_bytes = 0;
};

// Parameters behind two steps; the memory contract is checked.
Result Train(const ModelSpec& model, std::vector<int> cuts, Backend* backend, const char* recipe,
             Steps steps = Steps::kApart) {
  constexpr int64_t kBatch = 3;
  auto pipeline =
      TestPipeline::Make(model, std::move(cuts), kBatch, backend, 5, Checks::kOn, steps, recipe);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  Tensor x = Normal(pipeline->stages[0]->program.input, 5, 1);
  const std::vector<int32_t> labels(kBatch, 1);
  StepContext context;
  context.run_seed = 5;
  context.step_labels = kBatch;
  context.learning_rate = 0.0001;  // steps that no model leaves the floats by
  context.momentum = 0.9;
  for (int step = 0; step < 2; ++step) {
    const absl::Status status = pipeline->ForwardBackward(x.data(), labels.data(), context);
    EXPECT_TRUE(status.ok()) << status;
    context.sequence = context.sequence.next();
    EXPECT_TRUE(pipeline->Update(context).ok());
  }
  Result run = {.parameters = pipeline->Tensors(Storage::kParameters)};
  for (const auto& stage : pipeline->stages) run.stash_bytes += stage->program.stash_bytes;
  return run;
}

ModelSpec Small(const char* name) {
  ModelSpec model = *MakeModel(name);
  if (model.input.rank() == 3 && model.input[1] > 28) model.input = {model.input[0], 16, 16};
  return model;
}

bool AreSame(const Result& a, const Result& b) { return a.parameters == b.parameters; }

TEST(MaskStash, TheBytesAreThoseOfWholeValues) {
  const auto masks = Cpu(kCap, 2, true), apart = Cpu(kCap, 1, false), plain = Cpu(kCap, 1, true);
  WholeValues whole(*plain);
  for (const auto& [name, recipe] :
       {std::pair("lenet", "sbm:8,8,8"), std::pair("resnet8", "fp32"),
        std::pair("resnet8", "sbm:8,8,8"), std::pair("resnet8", "mls:2,4"),
        std::pair("resnet8", "sbm_range:8,8,8"), std::pair("lenet", "octo"),
        std::pair("mobilenet_v2", "sbm:8,8,8"), std::pair("lenet", "sbm:3,3,6"),
        std::pair("resnet8", "sbm:4,4,6"), std::pair("resnet8", "sbm_range:4,4,8"),
        std::pair("mobilenet_v2", "sbm:4,4,6")}) {
    SCOPED_TRACE(absl::StrCat(name, ", ", recipe));
    const ModelSpec model = Small(name);
    const Result kept = Train(model, {}, &whole, recipe);
    const Result masked = Train(model, {}, masks.get(), recipe);
    EXPECT_TRUE(AreSame(masked, kept));
    EXPECT_LE(masked.stash_bytes, kept.stash_bytes);
    EXPECT_TRUE(AreSame(Train(model, {}, apart.get(), recipe), kept));
    EXPECT_TRUE(AreSame(Train(model, {1, 2}, masks.get(), recipe), kept));
    EXPECT_TRUE(AreSame(Train(model, {}, masks.get(), recipe, Steps::kAlone), kept));
  }
}

TEST(MaskStash, RandomModelsTrainToTheSameBytes) {
  const auto masks = Cpu(kCap, 1, true);
  const auto plain = Cpu(kCap, 1, true);
  WholeValues whole(*plain);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ModelSpec model = RandomModel(seed);
    if (seed % 4 == 0) model = *WithStash(std::move(model), "bf16");
    const std::vector<int> cut(model.layer_count() > 1 ? 1 : 0, model.layer_count() / 2);
    const char* recipe = seed % 2 == 0 ? "fp32" : seed % 3 == 0 ? "sbm:4,4,8" : "sbm:8,8,8";
    EXPECT_TRUE(AreSame(Train(model, cut, masks.get(), recipe), Train(model, {}, &whole, recipe)))
        << seed;
  }
}

ModelSpec MadeAgain(ModelSpec model) {
  for (LayerSpec& layer : model.layers) layer.recompute = true;
  return model;
}

int64_t StashOf(const ModelSpec& model, const char* recipe, bool masks) {
  const auto program = CompileStage(
      model, 0, model.layer_count() - 1, 64, **FindRecipe(recipe),
      {.max_batch = 64, .recomputes = true, .integer_products = true, .masks_stash = masks});
  EXPECT_TRUE(program.ok()) << program.status();
  return program->stash_bytes;
}

TEST(MaskStash, CodesAndBitsTakeLessThanHalfOfWholeValues) {
  const ModelSpec model = *MakeModel("vgg11");
  EXPECT_LT(StashOf(model, "sbm:8,8,8", true) * 2, StashOf(model, "sbm:8,8,8", false));
}

// Not where --precision may give them more bits.
TEST(PackCodes, CodesOfFourBitsTakeHalfOfThoseOfEight) {
  const auto stash = [](const ModelSpec& model, const char* recipe, int most_forward_bits) {
    return CompileStage(model, 0, model.layer_count() - 1, 64, **FindRecipe(recipe),
                        {.max_batch = 64,
                         .recomputes = true,
                         .integer_products = true,
                         .masks_stash = true,
                         .most_forward_bits = most_forward_bits})
        ->stash_bytes;
  };
  for (const char* name : {"vgg11", "vgg11_bn", "resnet38"}) {
    const ModelSpec model = MadeAgain(*MakeModel(name));
    const int64_t bytes = stash(model, "sbm:8,8,8", 0), pairs = stash(model, "sbm:4,4,8", 0);
    EXPECT_LT(pairs * 10, bytes * 6) << name;
    EXPECT_EQ(stash(model, "sbm:4,4,8", 4), pairs) << name;
    EXPECT_EQ(stash(model, "sbm:4,4,8", 6), bytes) << name;
  }
}

// Of layers that are made again the codes of what enters are kept, where nothing needs the values.
TEST(RecomputeLayers, CodesStandForWhatEnters) {
  for (const char* name : {"vgg11_bn", "resnet38"}) {
    const ModelSpec model = *MakeModel(name);
    const int64_t whole = StashOf(model, "fp32", true);
    for (const char* recipe : {"sbm:4,4,8", "sbm:8,8,8", "ui8"})
      EXPECT_LE(StashOf(MadeAgain(model), recipe, true) * 8, whole) << name << ", " << recipe;
    // Its backward rounds what enters anew: codes beside it would be a quarter more.
    EXPECT_LE(StashOf(MadeAgain(model), "octo", true) * 20,
              StashOf(MadeAgain(model), "fp32", true) * 21)
        << name;
  }
}

TEST(RecomputeLayers, TheBytesAreThoseOfKeptValues) {
  const auto backend = Cpu(kCap, 2, true), apart = Cpu(kCap, 1, false);
  for (const auto& [name, recipe] :
       {std::pair("lenet", "sbm:8,8,8"), std::pair("resnet8", "sbm:8,8,8"),
        std::pair("resnet8", "sbm_range:8,8,8"), std::pair("resnet8", "ui8"),
        std::pair("lenet", "octo"), std::pair("mobilenet_v2", "sbm:8,8,8"),
        std::pair("resnet8", "sbm:4,4,6"), std::pair("mobilenet_v2", "sbm:4,4,6")}) {
    SCOPED_TRACE(absl::StrCat(name, ", ", recipe));
    const ModelSpec model = Small(name), again = MadeAgain(model);
    const Result kept = Train(model, {}, backend.get(), recipe);
    EXPECT_TRUE(AreSame(Train(again, {}, backend.get(), recipe), kept));
    EXPECT_TRUE(AreSame(Train(again, {}, apart.get(), recipe), kept));
    EXPECT_TRUE(AreSame(Train(again, {1, 2}, backend.get(), recipe), kept));
  }
}

TEST(RecomputeLayers, RandomModelsTrainToTheSameBytes) {
  const auto backend = Cpu(kCap, 1, true);
  for (uint64_t seed = 21; seed <= 35; ++seed) {
    const ModelSpec model = RandomModel(seed);
    const std::vector<int> cut(model.layer_count() > 1 ? 1 : 0, model.layer_count() / 2);
    const Result again = Train(MadeAgain(model), cut, backend.get(), "sbm:8,8,8");
    EXPECT_TRUE(AreSame(again, Train(model, {}, backend.get(), "sbm:8,8,8"))) << seed;
  }
}

// What is zero, not a number, infinite or at the bound of 6.
TEST(MaskStash, BitsAreThoseOfTheGradients) {
  std::vector<float> y;
  for (const float value : {-1.0f, -0.0f, 0.0f, 1e-30f, 3.0f, 5.9f, 6.0f, 7.0f, NAN, INFINITY})
    y.insert(y.end(), 53, value);
  const auto count = static_cast<int64_t>(y.size());
  Tensor values = Floats({1, count}, y), dy = Normal({1, count}, 1, 1);
  for (const char* name : {"ref", "cpu", "cpu:portable"}) {
    auto backend = *MakeBackend(name, 1);
    for (const auto& [mask_code, gradient] :
         {std::pair(OpCode::kReluMask, OpCode::kReluInputGradient),
          std::pair(OpCode::kRelu6Mask, OpCode::kRelu6InputGradient)}) {
      Tensor mask = Zeros({(count + 7) / 8}, DType::kUInt8);
      Tensor masked = Zeros({1, count}), plain = Zeros({1, count});
      ASSERT_TRUE(RunOp(mask_code, {}, {&values}, {&mask}, {}, 0, 0, backend.get()).ok());
      ASSERT_TRUE(
          RunOp(OpCode::kMaskedInputGradient, {}, {&dy, &mask}, {&masked}, {}, 0, 0, backend.get())
              .ok());
      ASSERT_TRUE(RunOp(gradient, {}, {&dy, &values}, {&plain}, {}, 0, 0, backend.get()).ok());
      EXPECT_EQ(masked.values(), plain.values()) << name;
    }
  }
}

}  // namespace
}  // namespace runnel::mask_stash_test
