// Programs on several processors beyond their bytes, which niti_bytes_test compares: what is
// chosen, what is told, what moves.

#include "kernels/backends/mixed/mixed_backend.h"

#include <cstdlib>
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ir/co_scheduler/value_flow.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/recipe.h"
#include "tests/kernels/device_backend.h"
#include "tests/kernels/integer_pipeline.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::mixed_backend_test {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Program Compiled(const char* recipe) {
  return *CompileStage(TwoProducts(), 0, 1, 4, **FindRecipe(recipe));
}

std::vector<int> ProcessorsOf(const ProgramSchedule& schedule, Part part) {
  return schedule.assignment()[static_cast<size_t>(part)];
}

TEST(MixedBackend, ARuleSaysWhatRunsWhere) {
  const Program program = Compiled("niti");
  const auto forward = [&](const char* names) {
    return ProcessorsOf(*(*MakeCoScheduler(names, BackendSettings()))->Schedule(program),
                        Part::kForward);
  };
  // quantize, conv, rescale with ReLU, pool, copy, linear, rescale, loss
  EXPECT_THAT(forward("cpu,ref@alternate"), ElementsAre(0, 1, 0, 1, 0, 1, 0, 1));
  EXPECT_THAT(forward("cpu,ref@rescale=ref"), ElementsAre(0, 0, 1, 0, 0, 0, 1, 0));
  EXPECT_THAT(forward("cpu,ref@rescale=cpu+*=ref"), ElementsAre(1, 1, 0, 1, 1, 1, 0, 1));
}

TEST(MixedBackend, ActivationsAreHalvesWhereAllProcessorsKeepThemSo) {
  const BackendSettings settings = {.options = *BackendOptions::Parse("opencl.activations=fp16")};
  const auto alone = MakeBackend("opencl", settings);
  const auto shared = MakeCoScheduler("cpu,opencl", settings);
  if (!alone.ok()) GTEST_SKIP() << "no OpenCL here: " << alone.status().message();
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_EQ((*alone)->traits().stash, DType::kFloat16);
  EXPECT_EQ((*shared)->traits().stash, DType::kFloat32);
}

TEST(MixedBackend, WhatDoesNotFitIsSaid) {
  const auto error = [](const char* names) {
    const auto made = MakeBackend(names, 1);
    EXPECT_TRUE(absl::IsInvalidArgument(made.status())) << names;
    return std::string(made.status().message());
  };
  EXPECT_THAT(error("cpu,cpu"), HasSubstr("cpu stands there twice"));
  EXPECT_THAT(error("cpu,warp"), HasSubstr("backend 'warp' is not known"));
  EXPECT_THAT(error("hexagon,cpu"),
              AnyOf(HasSubstr("hexagon has memory of its own"), HasSubstr("no DSP here")));
  EXPECT_THAT(error("cpu,ref@now"),
              HasSubstr("'now' is not alternate, random:SEED or INSTRUCTION=PROCESSOR"));
  EXPECT_THAT(error("cpu,ref@warp=ref"), HasSubstr("'warp=ref' is not"));
  EXPECT_THAT(error("cpu,ref@rescale=warp"), HasSubstr("processor 'warp' is none of cpu, ref"));
}

// ref is so slow that the measured schedule of a real product never goes there.
TEST(MixedBackend, MeasuresWhereItMay) {
  OpSpec conv = OpOf(OpKind::kConv, {0});
  conv.out_channels = 32;
  conv.kernel = {3, 3};
  const ModelSpec model =
      ModelOf({16, 24, 24}, 10, {{conv}, {OpOf(OpKind::kFlatten, {0}), LinearOp(10, {1})}});
  const Program program = *CompileStage(model, 0, 1, 4, **FindRecipe("niti"));
  const auto processors = *MakeCoScheduler("cpu,ref", BackendSettings());
  const ProgramSchedule schedule = *processors->Schedule(program);
  EXPECT_THAT(schedule.sources, ElementsAre("cpu (measured)", "ref (measured)"));
  EXPECT_EQ(ProcessorsOf(schedule, Part::kForward)[1], 0);
  EXPECT_GT(schedule.PartSeconds(Part::kForward), 0);
}

// An assignment that changes from run to run would change the last bits.
TEST(MixedBackend, CountsWhereBytesDependOnTheAssignment) {
  const Program program = Compiled("fp32");
  const auto processors = *MakeCoScheduler("cpu,ref", BackendSettings());
  const ProgramSchedule schedule = *processors->Schedule(program);
  EXPECT_THAT(schedule.sources, ElementsAre("cpu (counted)", "ref (counted)"));
  EXPECT_EQ((*processors->Schedule(program)).assignment(), schedule.assignment());
  EXPECT_THAT(processors->numerics_class(), HasSubstr("+ref/counted"));
  EXPECT_THAT((*MakeCoScheduler("cpu,ref@alternate", BackendSettings()))->numerics_class(),
              HasSubstr("+ref/alternate"));
}

// The switch decides: what is faster elsewhere goes there as long as the way is short.
TEST(MixedBackend, NothingGoesToAProcessorThatIsTooFarAway) {
  const Program program = *CompileStage(TwoProducts(), 0, 1, 4, **FindRecipe("niti"));
  const auto assignment = [&](double switch_seconds) {
    MixedOptions options;
    options.switch_seconds["cpu"] = switch_seconds;
    options.counts = true;
    return (*(*MakeCoScheduler("ref,cpu", BackendSettings(), options))->Schedule(program))
        .assignment();
  };
  EXPECT_THAT(assignment(0)[static_cast<size_t>(Part::kForward)], testing::Contains(1));
  for (const std::vector<int>& part : assignment(10)) EXPECT_THAT(part, Each(0));
  MixedOptions options;
  options.switch_seconds["ref"] = 1;
  EXPECT_THAT(MakeCoScheduler("ref,cpu", BackendSettings(), options).status().message(),
              HasSubstr("a switch to 'ref', which is no processor beside"));
}

// Within a class: the same bytes again, and close to ref. Checks: nothing touches what it must not.
TEST(MixedBackend, FloatsAreRepeatable) {
  const auto train = [](const char* names) {
    const auto backend = *MakeBackend(names, 1);
    auto net = *TestPipeline::Make(TwoProducts(), {}, 4, backend.get(), 7, Checks::kOn);
    StepContext context;
    context.step_labels = 4;
    context.learning_rate = 0.1;
    context.momentum = 0.9;
    for (int step = 0; step < 3; ++step) {
      const std::vector<float> x = RandomValues(5, static_cast<uint64_t>(step), 4 * 128);
      const std::vector<int32_t> labels = RandomLabels(5, static_cast<uint64_t>(step), 4, 5);
      EXPECT_EQ(net.ForwardBackward(x.data(), labels.data(), context), absl::OkStatus());
      EXPECT_EQ(net.Update(context), absl::OkStatus());
    }
    return net.Tensors(Storage::kParameters);
  };
  const auto mixed = train("cpu,ref@alternate"), ref = train("ref");
  EXPECT_EQ(train("cpu,ref@alternate"), mixed);
  ASSERT_EQ(mixed.size(), ref.size());
  for (size_t i = 0; i < ref.size(); ++i) {
    for (size_t k = 0; k < ref[i].size(); ++k) EXPECT_NEAR(mixed[i][k], ref[i][k], 1e-4);
  }
}

// Weights go to a processor once a version, and again after the host has changed them.
TEST(MixedBackend, AProcessorSeesWeightsThatTheHostChanged) {
  std::vector<std::unique_ptr<Backend>> processors;
  for (const char* name : {"cpu", "ref"}) processors.push_back(*MakeBackend(name, 1));
  processors[1] = MakeDeviceBackend(std::move(processors[1]));
  const auto mixed = *MakeCoScheduler(std::move(processors), {.rule = "*=device"});
  auto net = *IntegerPipeline::Make(TwoProducts(), {}, 4, mixed.get(), **FindRecipe("niti"));
  IntegerStage& stage = net.stages[0];
  EXPECT_GT(stage.executable->memory_bytes(), stage.program.state.parameter_bytes);
  const auto weights = *mixed->Allocate(stage.program.state.parameter_bytes);
  stage.bindings[Storage::kParameters] = weights->address();
  const std::vector<float> x = RandomValues(5, 0, 4 * 128);
  const std::vector<int32_t> labels = RandomLabels(5, 0, 4, 5);
  const auto output_with = [&](int8_t mantissa) {
    {
      const Mapping mapping = *Mapping::Of(*weights, MapAccess::kReadWrite);
      for (const StateTensor& tensor : stage.program.state.tensors) {
        if (tensor.spec.role != TensorRole::kWeight) continue;
        std::memset(mapping.data() + tensor.offset_bytes, mantissa,
                    static_cast<size_t>(tensor.spec.shape.elements()));
      }
    }
    EXPECT_EQ(net.ForwardBackward(x.data(), labels.data(), {}), absl::OkStatus());
    return net.Output(0);
  };
  const Scaled ones = output_with(1);
  EXPECT_NE(ones, output_with(-3));
  EXPECT_EQ(ones, output_with(1));
}

// Memory is used again, in place and by others: who writes what is read follows from the order.
TEST(ValueFlow, FollowsMemoryThatIsUsedAgain) {
  Program program;
  program.batch = 1;
  const auto buffer = [&](Storage storage, int64_t elements, int64_t offset) {
    program.buffers.push_back({storage, DType::kFloat32, Shape{1, elements}, offset});
    return static_cast<BufferIndex>(program.buffers.size() - 1);
  };
  const BufferIndex x = buffer(Storage::kInput, 32, 0), a = buffer(Storage::kScratch, 32, 0),
                    in_place = buffer(Storage::kScratch, 32, 0),
                    other = buffer(Storage::kScratch, 16, 64), y = buffer(Storage::kOutput, 32, 0);
  std::vector<Instruction>& forward = program.parts[0];
  forward = {{OpCode::kCopy, {x}, {a}},
             {OpCode::kReluForward, {a}, {in_place}},
             {OpCode::kCopy, {in_place}, {y}}};
  const ProgramFlow flow = *FollowValues(program);
  EXPECT_EQ(flow.of(Part::kForward, 2).inputs[0], flow.of(Part::kForward, 1).outputs[0]);
  EXPECT_NE(flow.of(Part::kForward, 1).inputs[0], flow.of(Part::kForward, 1).outputs[0]);
  const FlowValue& leaves = flow.values[static_cast<size_t>(flow.of(Part::kForward, 2).outputs[0])];
  EXPECT_TRUE(leaves.survives_part);
  // Something else lies over half of it, or nothing was there.
  forward.insert(forward.begin() + 2, {OpCode::kCopy, {x}, {other}});
  const auto error = [&] { return std::string(FollowValues(program).status().message()); };
  EXPECT_THAT(error(), HasSubstr("reads a part of a value"));
  forward = {{OpCode::kCopy, {x}, {a}}, {OpCode::kCopy, {other}, {y}}};
  EXPECT_THAT(error(), HasSubstr("reads a part of a value"));
  forward = {{OpCode::kCopy, {other}, {y}}};
  EXPECT_THAT(error(), HasSubstr("reads what nobody wrote"));
}

TEST(MixedBackend, EvaluatesAsOneBackendDoes) {
  const auto evaluate = [](const char* names, Scaled& output) {
    const auto backend = *MakeBackend(names, 1);
    auto net = *IntegerPipeline::Make(TwoProducts(), {}, 4, backend.get(), **FindRecipe("niti"));
    for (size_t i = 0; i < net.weight_count(); ++i) {
      const auto count = static_cast<int64_t>(net.Weight(i).mantissas.size());
      net.SetWeight(i, {GoldenMantissas(10 + i, count), -9});
    }
    IntegerStage& stage = net.stages[0];
    const std::vector<float> x = RandomValues(5, 0, 4 * 128);
    std::memcpy(stage.bindings[Storage::kInput], x.data(), x.size() * sizeof(float));
    const std::vector<int32_t> labels = RandomLabels(5, 0, 4, 5);
    std::memcpy(stage.bindings[Storage::kLabels], labels.data(), labels.size() * sizeof(int32_t));
    EXPECT_EQ(stage.executable->Run(Part::kForwardEval, {}, stage.bindings), absl::OkStatus());
    output = net.Output(0);
    return net.loss();
  };
  Scaled mixed, ref;
  EXPECT_EQ(evaluate("cpu,ref@alternate", mixed), evaluate("ref", ref));
  EXPECT_EQ(mixed, ref);
  EXPECT_NE(mixed, Scaled{std::vector<int8_t>(20)});
}

TEST(MixedBackend, OneProcessorAloneRunsAsEver) {
  const auto one = *MakeCoScheduler("cpu", BackendSettings());
  EXPECT_EQ(one->numerics_class(), (*MakeBackend("cpu", 1))->numerics_class());
  const Program program = Compiled("niti");
  EXPECT_EQ((*one->Prepare(program))->memory_bytes(), 0);
}

}  // namespace
}  // namespace runnel::mixed_backend_test
