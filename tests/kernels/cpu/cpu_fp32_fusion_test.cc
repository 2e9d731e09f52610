// Fused steps, recomputation, also of whole layers, and updates in the backward change no byte: against the same backend
// run instruction by instruction, on whole models, cut and uncut, with the memory contract checked
// on the way.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backends/cpu/codes/code_kernels.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/cpu/fused_steps.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/backends/cpu/integer/integer_kernels.h"
#include "kernels/backends/ref/ref_backend.h"
#include "kernels/ir/compiler.h"
#include "partition/zoo/zoo.h"
#include "proto/base/random.h"
#include "tests/kernels/cpu/capped_cpu.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::cpu_fp32_fusion_test {
namespace {

using runnel::ExpectSame;

void ExpectSame(const TwoSteps& a, const TwoSteps& b) {
  ExpectSame(a.logits, b.logits, "logits");
  ExpectSame(a.eval_logits, b.eval_logits, "logits of evaluation");
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (size_t i = 0; i < a.parameters.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("parameter tensor ", i));
    ExpectSame(a.parameters[i], b.parameters[i], "parameters");
    ExpectSame(a.momentum[i], b.momentum[i], "momentum");
  }
  for (size_t i = 0; i < a.statistics.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("statistics tensor ", i));
    ExpectSame(a.statistics[i], b.statistics[i], "statistics");
  }
}

// Middle layers of the zoo's nets on small images: every shape of block that they have.
ModelSpec Shrunk(const std::string& name, int64_t side) {
  ModelSpec model = *MakeModel(name);
  model.input = {model.input[0], side, side};
  return model;
}

const cpu::KernelRow* FindKernel(OpCode code) {
  for (const auto rows :
       {fp32::KernelRows(), cpu::IntegerKernels(), cpu::CodeKernels(), cpu::GridKernels()}) {
    for (const cpu::KernelRow& row : rows) {
      if (row.code == code) return &row;
    }
  }
  return nullptr;
}

TEST(CpuBackend, RefusesAnInstructionSetThatIsNotThere) {
  const absl::Status status = MakeCappedCpuBackend("abacus", 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("portable"), absl::string_view::npos);
  EXPECT_EQ(MakeCappedCpuBackend("portable", 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CpuFusion, ZooModelsTrainToTheSameBytes) {
  for (const std::string name : {"mobilenet_v2", "mobilenet_v2_s1", "lenet"}) {
    SCOPED_TRACE(name);
    const ModelSpec model = name == "lenet" ? *MakeModel(name) : Shrunk(name, 16);
    const std::string cap = CpuInstructionSets().front();
    const TwoSteps plain = TrainTwoSteps(model, {}, 3, Cpu(cap, 1, false).get(), 7);
    ExpectSame(plain, TrainTwoSteps(model, {}, 3, Cpu(cap, 1, true).get(), 7));
    ExpectSame(plain, TrainTwoSteps(model, {}, 3, Cpu(cap, 2, true).get(), 7));
    ExpectSame(plain, TrainTwoSteps(model, {2, 4}, 3, Cpu(cap, 1, true).get(), 7));
  }
}

// Of several blocks of images, so that what lies over what counts.
TEST(CpuFusion, LargeBatchesTrainToTheSameBytes) {
  const ModelSpec model = *MakeModel("lenet");
  const std::string cap = CpuInstructionSets().front();
  for (const int64_t batch : {24, 64}) {
    SCOPED_TRACE(batch);
    for (const Steps steps : {Steps::kApart, Steps::kAlone}) {
      ExpectSame(TrainTwoSteps(model, {}, batch, Cpu(cap, 2, false).get(), 7, 1, steps),
                 TrainTwoSteps(model, {}, batch, Cpu(cap, 2, true).get(), 7, 1, steps));
    }
  }
}

TEST(CpuFusion, RandomModelsTrainToTheSameBytesOnEveryInstructionSet) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const ModelSpec model = RandomModel(seed);
    for (const std::string& cap : CpuInstructionSets()) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", cap));
      const TwoSteps plain = TrainTwoSteps(model, {}, 4, Cpu(cap, 1, false).get(), seed);
      ExpectSame(plain, TrainTwoSteps(model, {}, 4, Cpu(cap, 3, true).get(), seed));
      if (model.layer_count() < 2) continue;
      ExpectSame(plain,
                 TrainTwoSteps(model, {model.layer_count() / 2}, 4, Cpu(cap, 1, true).get(), seed));
    }
  }
}

// Logits of an evaluation. weights: StepContext::weights.
std::vector<float> Evaluate(TestPipeline& pipeline, int64_t batch, int64_t weights = 0) {
  const CounterRandom random(3, RandomPurpose::kTest, 5, 0);
  std::vector<float> x(static_cast<size_t>(pipeline.stages[0]->program.input.elements()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.Normal(i));
  const std::vector<int32_t> labels(static_cast<size_t>(batch));
  StepContext context;
  context.weights = weights;
  const absl::Status status =
      pipeline.Forward(Part::kForwardEval, x.data(), labels.data(), context);
  EXPECT_TRUE(status.ok()) << status;
  return pipeline.logits;
}

// Sums go through the batch norm, activation and addition behind their product, large images in
// bands, with weights packed anew or kept.
TEST(CpuFusion, EvaluationsAreTheSameBytes) {
  for (const auto& [name, side] : {std::pair("resnet8", 96), {"mobilenet_v1", 20}, {"lenet", 28}}) {
    const ModelSpec model = Shrunk(name, side);
    for (const std::string& cap : CpuInstructionSets()) {
      // One model on all of them, as above.
      if (cap != CpuInstructionSets().front() && std::string(name) != "resnet8") continue;
      const auto plain = Cpu(cap, 1, false), fused = Cpu(cap, 2, true);
      for (const int64_t batch : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(name, ", ", cap, ", batch ", batch));
        auto whole = TestPipeline::Make(model, {}, batch, plain.get(), 3);
        const std::vector<float> apart = Evaluate(*whole, batch);
        auto uncut = TestPipeline::Make(model, {}, batch, fused.get(), 3);
        ExpectSame(apart, Evaluate(*uncut, batch), "packed anew");
        ExpectSame(apart, Evaluate(*uncut, batch, 1), "packed");
        ExpectSame(apart, Evaluate(*uncut, batch, 1), "kept");
        auto cut = TestPipeline::Make(model, {1, 3}, batch, fused.get(), 3, Checks::kOn);
        ExpectSame(apart, Evaluate(*cut, batch), "cut");
      }
    }
  }
}

// Convolutions by F(2x2, 3x3), of odd sizes too, are near the direct sums of ref; training is not marked.
TEST(CpuFusion, EvaluationsAreNearThoseOfRef) {
  const auto ref = *MakeRefBackend(1);
  for (const int64_t side : {44, 50}) {
    const ModelSpec model = Shrunk("resnet8", side);
    auto exact = TestPipeline::Make(model, {}, 2, ref.get(), 3);
    int marked = 0;
    for (const Instruction& one : exact->stages[0]->program.part(Part::kForwardEval))
      marked += one.winograd;
    for (const Instruction& one : exact->stages[0]->program.part(Part::kForward))
      EXPECT_FALSE(one.winograd);
    EXPECT_EQ(marked, 2);
    const std::vector<float> wanted = Evaluate(*exact, 2);
    float most = 0;
    for (const float logit : wanted) most = std::max(most, std::abs(logit));
    for (const std::string& cap : CpuInstructionSets()) {
      const auto backend = Cpu(cap, 1, true);
      auto fast = TestPipeline::Make(model, {}, 2, backend.get(), 3, Checks::kOn);
      const std::vector<float> got = Evaluate(*fast, 2);
      for (size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(got[i], wanted[i], 1e-4 * most) << cap << ", side " << side;
    }
  }
}

TEST(CpuFusion, EvaluatedProductsTakeWhatFollowsAlong) {
  const auto count = [](const char* name) {
    const ModelSpec model = Shrunk(name, 64);
    const CompileOptions options = {.max_batch = 1, .recomputes = true};
    const Program program =
        CompileStage(model, 0, model.layer_count() - 1, 1, **FindRecipe("fp32"), options).value();
    const cpu::StepPlan plan =
        cpu::FuseSteps(program, cpu::PlanLayout(program, FindKernel).value());
    std::map<size_t, int> by_parts;
    for (const cpu::Step& step : plan[static_cast<int>(Part::kForwardEval)])
      by_parts[step.parts.size()] += step.run == fp32::FinishedProduct;
    return by_parts;
  };
  // Of 53 convolutions 33 have an activation behind their batch norm. 4 end the main path of a block
  // whose shortcut has a convolution, and one in each of 16 blocks takes the sum and its activation.
  std::map<size_t, int> resnet = count("resnet50_imagenet");
  EXPECT_EQ(resnet[2], 4);
  EXPECT_EQ(resnet[3], 33);
  EXPECT_EQ(resnet[4], 16);
  EXPECT_EQ(count("mobilenet_v1")[3], 27);
}

// Codes are made of a batch norm's values and of its gradient without these in memory.
TEST(CpuFusion, CodesOfNormsAreTheSameBytes) {
  for (const char* recipe : {"sbm:8,8,8", "sbm:4,4,12"}) {
    for (const std::string name : {"resnet8", "vgg11_bn", "mobilenet_v2", "har_cnn"}) {
      const ModelSpec model = name == "har_cnn" ? *MakeModel(name) : Shrunk(name, 32);
      for (const std::string& cap : CpuInstructionSets()) {
        // One model on all of them: what differs by instruction set differs in all models.
        if (cap != CpuInstructionSets().front() && name != "resnet8") continue;
        SCOPED_TRACE(absl::StrCat(recipe, ", ", name, ", ", cap));
        const auto plain = Cpu(cap, 1, false), fused = Cpu(cap, 2, true);
        const TwoSteps apart =
            TrainTwoSteps(model, {}, 3, plain.get(), 7, 1, Steps::kApart, recipe);
        ExpectSame(apart, TrainTwoSteps(model, {}, 3, fused.get(), 7, 1, Steps::kApart, recipe));
        ExpectSame(apart,
                   TrainTwoSteps(model, {2, 3}, 3, fused.get(), 7, 1, Steps::kAlone, recipe));
      }
    }
  }
}

// Equal bytes say nothing where nothing was fused.
TEST(CpuFusion, CodesAreMadeWithinTheStepsOfNorms) {
  const ModelSpec model = Shrunk("resnet8", 32);
  const CompileOptions options = {.max_batch = 4, .recomputes = true, .integer_products = true};
  const Program program =
      CompileStage(model, 0, model.layer_count() - 1, 4, **FindRecipe("sbm:8,8,8"), options)
          .value();
  int norms = 0, sums = 0, gradients = 0;
  for (const std::vector<cpu::Step>& steps :
       cpu::FuseSteps(program, cpu::PlanLayout(program, FindKernel).value())) {
    for (const cpu::Step& step : steps) {
      norms += step.run == cpu::CodesOfNorm;
      sums += step.run == cpu::CodesOfSum;
      gradients += step.run == cpu::CodesOfNormGradient;
    }
  }
  EXPECT_GT(norms, 0);
  EXPECT_GT(sums, 0);
  EXPECT_GT(gradients, 0);
}

TEST(StepInBackward, ZooModelsTrainToTheSameBytes) {
  const std::string cap = CpuInstructionSets().front();
  for (const std::string name : {"mobilenet_v2", "vgg11", "lenet"}) {
    SCOPED_TRACE(name);
    const ModelSpec model = name == "lenet" ? *MakeModel(name) : Shrunk(name, 32);
    const auto plain = Cpu(cap, 1, false), fused = Cpu(cap, 1, true);
    const TwoSteps apart = TrainTwoSteps(model, {}, 2, plain.get(), 7, 1);
    for (const bool cut : {false, true}) {
      for (Backend* backend : {plain.get(), fused.get()}) {
        SCOPED_TRACE(
            absl::StrCat(cut ? "cut" : "uncut", backend->traits().recomputes ? ", fused" : ""));
        const std::vector<int> cuts = cut ? std::vector<int>{1, 3} : std::vector<int>();
        ExpectSame(apart, TrainTwoSteps(model, cuts, 2, backend, 7, 1, Steps::kAlone));
      }
    }
  }
}

TEST(StepInBackward, RandomModelsTrainToTheSameBytes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const ModelSpec model = RandomModel(seed);
    const auto plain = Cpu("portable", 1, false), fused = Cpu("portable", 2, true);
    const TwoSteps apart = TrainTwoSteps(model, {}, 4, plain.get(), seed, 1);
    ExpectSame(apart, TrainTwoSteps(model, {}, 4, fused.get(), seed, 1, Steps::kAlone));
    if (model.layer_count() < 2) continue;
    const int cut = model.layer_count() / 2;
    ExpectSame(apart, TrainTwoSteps(model, {cut}, 4, fused.get(), seed, 1, Steps::kAlone));
  }
}

// Every `step`-th layer.
ModelSpec Recomputing(ModelSpec model, size_t step) {
  for (size_t i = 0; i < model.layers.size(); i += step) model.layers[i].recompute = true;
  return model;
}

TEST(RecomputedLayers, ZooModelsTrainToTheSameBytes) {
  const std::string cap = CpuInstructionSets().front();
  const auto plain = Cpu(cap, 1, false), fused = Cpu(cap, 1, true);
  for (const std::string name : {"mobilenet_v2", "resnet8", "lenet", "har_cnn"}) {
    SCOPED_TRACE(name);
    const bool is_small = name == "lenet" || name == "har_cnn";
    const ModelSpec model = is_small ? *MakeModel(name) : Shrunk(name, 16);
    const TwoSteps kept = TrainTwoSteps(model, {}, 3, plain.get(), 7);
    for (Backend* backend : {plain.get(), fused.get()}) {
      ExpectSame(kept, TrainTwoSteps(Recomputing(model, 1), {}, 3, backend, 7));
      ExpectSame(kept, TrainTwoSteps(Recomputing(model, 2), {}, 3, backend, 7));
      ExpectSame(kept, TrainTwoSteps(Recomputing(model, 1), {1, 3}, 3, backend, 7));
    }
    const TwoSteps alone = TrainTwoSteps(model, {}, 3, plain.get(), 7, 1);
    ExpectSame(alone,
               TrainTwoSteps(Recomputing(model, 1), {2}, 3, fused.get(), 7, 1, Steps::kAlone));
  }
}

TEST(RecomputedLayers, CodesAreMadeAgainWithTheSameBytes) {
  constexpr const char* kRecipe = "sbm:8,8,8";
  const std::string cap = CpuInstructionSets().front();
  const auto plain = Cpu(cap, 1, false), fused = Cpu(cap, 2, true);
  const ModelSpec model = Shrunk("resnet8", 16);
  const TwoSteps kept = TrainTwoSteps(model, {}, 3, plain.get(), 7, 2, Steps::kApart, kRecipe);
  for (Backend* backend : {plain.get(), fused.get()}) {
    ExpectSame(kept,
               TrainTwoSteps(Recomputing(model, 1), {}, 3, backend, 7, 2, Steps::kApart, kRecipe));
    ExpectSame(kept,
               TrainTwoSteps(Recomputing(model, 2), {2}, 3, backend, 7, 2, Steps::kApart, kRecipe));
  }
}

TEST(RecomputedLayers, RandomModelsTrainToTheSameBytes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const ModelSpec model = RandomModel(seed);
    const auto plain = Cpu("portable", 1, false), fused = Cpu("portable", 2, true);
    const TwoSteps kept = TrainTwoSteps(model, {}, 4, plain.get(), seed);
    ExpectSame(kept, TrainTwoSteps(Recomputing(model, 1), {}, 4, plain.get(), seed));
    ExpectSame(kept, TrainTwoSteps(Recomputing(model, 1 + seed % 2), {}, 4, fused.get(), seed));
  }
}

TEST(RecomputedLayers, KeepWhatEntersThem) {
  const Recipe& fp32 = **FindRecipe("fp32");
  const ModelSpec model = *MakeModel("resnet74");
  const auto stash = [&](const ModelSpec& of, bool recomputes) {
    const CompileOptions options = {.max_batch = 2, .recomputes = recomputes};
    return static_cast<double>(
        CompileStage(of, 0, of.layer_count() - 1, 2, fp32, options)->stash_bytes);
  };
  const ModelSpec again = Recomputing(model, 1);
  EXPECT_LE(stash(again, false), 0.35 * stash(model, false));
  EXPECT_LE(stash(again, true), 0.35 * stash(model, true));
}

}  // namespace
}  // namespace runnel::cpu_fp32_fusion_test
