// Processors that compute at the same time: that they do, that a micro-batch keeps its bytes
// whatever comes between its parts, and what happens when one of them fails.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/lost_backend.h"
#include "kernels/backends/mixed/mixed_backend.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/recipe.h"
#include "tests/kernels/integer_pipeline.h"
#include "tests/kernels/random_model.h"

namespace runnel::mixed_lanes_test {
namespace {

using ::testing::HasSubstr;

// Told before a part of a segment runs.
using Watch = std::function<absl::Status(Part)>;

class WatchedExecutable final : public Executable {
 public:
  WatchedExecutable(std::unique_ptr<Executable> executable, const Watch& watch)
      : executable_(std::move(executable)), watch_(watch) {}
  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    if (absl::Status status = watch_(part); !status.ok()) return status;
    return executable_->Run(part, context, bindings);
  }

 private:
  const std::unique_ptr<Executable> executable_;
  const Watch& watch_;
};

// ref as another processor, which may lack instructions.
class WatchedBackend final : public Backend {
 public:
  WatchedBackend(const BackendTraits& traits, Watch watch, std::vector<OpCode> lacks = {})
      : traits_(traits),
        backend_(*MakeBackend("ref", 1)),
        watch_(std::move(watch)),
        lacks_(std::move(lacks)) {}
  BackendTraits traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    for (const auto& part : program.parts) {
      for (const Instruction& instruction : part) {
        if (std::find(lacks_.begin(), lacks_.end(), instruction.code) != lacks_.end())
          return absl::UnimplementedError("lacks it");
      }
    }
    auto executable = backend_->Prepare(program);
    if (!executable.ok()) return executable.status();
    return std::make_unique<WatchedExecutable>(*std::move(executable), watch_);
  }

 private:
  const BackendTraits traits_;
  const std::unique_ptr<Backend> backend_;
  const Watch watch_;
  const std::vector<OpCode> lacks_;
};

// Something that several threads wait for; not for ever, so that a test fails and does not hang.
class Event {
 public:
  void Happen() {
    const std::lock_guard lock(mutex_);
    ++times_;
    changed_.notify_all();
  }
  absl::Status Await(int times = 1) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::seconds(60), [&] { return times_ >= times; }))
      return absl::OkStatus();
    return absl::DeadlineExceededError("what was waited for did not happen");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int times_ = 0;
};

absl::Status Nothing(Part) { return absl::OkStatus(); }

std::unique_ptr<CoScheduler> Processors(Watch host, Watch second, Watch third, const char* rule) {
  std::vector<std::unique_ptr<Backend>> processors;
  const auto add = [&](const char* name, Watch watch) {
    processors.push_back(std::make_unique<WatchedBackend>(
        BackendTraits{.name = name, .numerics_class = name}, std::move(watch)));
  };
  add("host", std::move(host));
  add("second", std::move(second));
  add("third", std::move(third));
  return *MakeCoScheduler(std::move(processors), {.rule = rule});
}

IntegerPipeline MakeNet(Backend& backend, bool accumulates = false) {
  auto net =
      *IntegerPipeline::Make(TwoProducts(), {}, 4, &backend, **FindRecipe("niti"), accumulates);
  for (size_t i = 0; i < net.weight_count(); ++i) {
    const auto count = static_cast<int64_t>(net.Weight(i).mantissas.size());
    net.SetWeight(i, {GoldenMantissas(10 + i, count), -9});
  }
  return net;
}

absl::Status TrainOnce(IntegerPipeline& net) {
  const std::vector<float> x = RandomValues(5, 0, 4 * 128);
  const std::vector<int32_t> labels = RandomLabels(5, 0, 4, 5);
  return net.ForwardBackward(x.data(), labels.data(), {});
}

std::vector<std::vector<int64_t>> Gradients(IntegerPipeline& net) {
  std::vector<std::vector<int64_t>> gradients;
  for (size_t i = 0; i < net.weight_count(); ++i) gradients.push_back(net.Gradient(i));
  return gradients;
}

std::vector<std::vector<int64_t>> ExpectedGradients() {
  const auto backend = *MakeBackend("ref", 1);
  auto net = MakeNet(*backend);
  EXPECT_TRUE(TrainOnce(net).ok());
  return Gradients(net);
}

// The host and another processor both begin before either goes on.
TEST(MixedLanes, WeightGradientsRunAtTheSameTime) {
  Event begun;
  const auto meet = [&](Part part) {
    if (part != Part::kWeightGradient) return absl::OkStatus();
    begun.Happen();
    return begun.Await(2);
  };
  const auto backend = Processors(meet, meet, Nothing, "int8_conv_weight_gradient=second+*=host");
  auto net = MakeNet(*backend);
  EXPECT_EQ(TrainOnce(net), absl::OkStatus());
  EXPECT_EQ(Gradients(net), ExpectedGradients());
}

// The host's last input-gradient waits for the linear layer's weight-gradient elsewhere.
TEST(MixedLanes, WeightGradientsBeginBesideInputGradients) {
  Event weight_gradient, pool;
  const auto host = [&](Part part) {
    if (part != Part::kInputGradient || !pool.Await().ok()) return absl::OkStatus();
    return weight_gradient.Await();
  };
  const auto second = [&](Part part) {
    if (part == Part::kWeightGradient) weight_gradient.Happen();
    return absl::OkStatus();
  };
  const auto third = [&](Part part) {
    if (part == Part::kInputGradient) pool.Happen();
    return absl::OkStatus();
  };
  const auto backend = Processors(
      host, second, third,
      "int8_linear_weight_gradient=second+int8_linear_input_gradient=third+rescale=third+*=host");
  auto net = MakeNet(*backend);
  EXPECT_EQ(TrainOnce(net), absl::OkStatus());
  EXPECT_EQ(Gradients(net), ExpectedGradients());
}

TEST(MixedLanes, AProcessorThatIsLostEndsTheOthers) {
  for (const Part part : {Part::kForward, Part::kInputGradient, Part::kWeightGradient}) {
    bool lost = true;
    const auto fail = [&](Part now) {
      if (!lost || now != part) return absl::OkStatus();
      return MarkLostBackend(absl::UnavailableError("its plug was pulled"), "second");
    };
    const auto backend = Processors(Nothing, fail, Nothing, "alternate");
    auto net = MakeNet(*backend);
    const absl::Status status = TrainOnce(net);
    EXPECT_EQ(LostBackendOf(status), "second") << static_cast<int>(part);
    EXPECT_THAT(status.message(), HasSubstr("plug"));
    // Those that are left go on, as do executables that are made anew.
    lost = false;
    auto next = MakeNet(*backend);
    EXPECT_EQ(TrainOnce(next), absl::OkStatus());
    EXPECT_EQ(Gradients(next), ExpectedGradients());
  }
}

// All memory goes while a weight-gradient is under way, as when a stage is given up.
TEST(MixedLanes, AStageCanGoBetweenItsParts) {
  Event begun;
  const auto second = [&](Part part) {
    if (part == Part::kWeightGradient) begun.Happen();
    return absl::OkStatus();
  };
  const auto host = [&](Part part) {
    return part == Part::kInputGradient ? begun.Await() : absl::OkStatus();
  };
  const auto backend =
      Processors(host, second, Nothing, "int8_linear_weight_gradient=second+*=host");
  auto net = MakeNet(*backend);
  IntegerStage& stage = net.stages[0];
  for (const Part part : {Part::kForward, Part::kInputGradient})
    EXPECT_EQ(stage.executable->Run(part, {}, stage.bindings), absl::OkStatus());
  // A micro-batch's weight-gradient is not another one's.
  StepContext other;
  other.sequence = Sequence(7);
  EXPECT_THAT(stage.executable->Run(Part::kWeightGradient, other, stage.bindings).message(),
              HasSubstr("weight-gradient of micro-batch 7 before that of 0"));
  for (auto& memory : stage.memory) memory.reset();
}

// As zero-bubble schedules have it: another micro-batch's forward and input-gradient come before a
// weight-gradient, each with areas of its own. Gradients are added up in the order of
// micro-batches.
TEST(MixedLanes, OtherMicroBatchesMayComeBetweenTheParts) {
  const auto train = [](Backend& backend) {
    auto net = MakeNet(backend, /*accumulates=*/true);
    IntegerStage& stage = net.stages[0];
    std::vector<Bindings> bindings(3, stage.bindings);
    std::vector<std::unique_ptr<AlignedBytes>> memory;
    for (size_t m = 0; m < bindings.size(); ++m) {
      for (const Storage own : {Storage::kInput, Storage::kOutput, Storage::kOutputGradient,
                                Storage::kLabels, Storage::kStash, Storage::kScratch}) {
        memory.push_back(std::make_unique<AlignedBytes>(stage.memory_of(own)->size()));
        bindings[m][own] = memory.back()->data();
      }
      const std::vector<float> x = RandomValues(5, m, 4 * 128);
      std::memcpy(bindings[m][Storage::kInput], x.data(), x.size() * sizeof(float));
      const std::vector<int32_t> labels = RandomLabels(5, m, 4, 5);
      std::memcpy(bindings[m][Storage::kLabels], labels.data(), labels.size() * sizeof(int32_t));
    }
    const auto run = [&](Part part, size_t m) {
      StepContext context;
      context.sequence = Sequence(static_cast<int64_t>(m));
      context.accumulate = m > 0;
      EXPECT_EQ(stage.executable->Run(part, context, bindings[m]), absl::OkStatus());
    };
    using enum Part;
    const std::vector<std::pair<Part, size_t>> order = {
        {kForward, 0},        {kInputGradient, 0},  {kForward, 1},
        {kInputGradient, 1},  {kWeightGradient, 0}, {kForward, 2},
        {kWeightGradient, 1}, {kInputGradient, 2},  {kWeightGradient, 2}};
    for (const auto& [part, m] : order) run(part, m);
    return Gradients(net);
  };
  const auto expected = train(*std::move(*MakeBackend("ref", 1)));
  for (int seed = 0; seed < 20; ++seed) {
    const std::string name = "cpu,ref@random:" + std::to_string(seed);
    EXPECT_EQ(train(*std::move(*MakeBackend(name, 1))), expected) << name;
  }
  EXPECT_EQ(train(*std::move(*MakeBackend("cpu,ref@*=ref", 1))), expected);
}

// The host computes all input-gradients, which the other one lacks; the schedule cuts them so that
// weight-gradients begin meanwhile.
TEST(MixedLanes, ASchedulePutsWeightGradientsBesideInputGradients) {
  std::vector<std::vector<OpSpec>> layers;
  for (int layer = 0; layer < 4; ++layer) {
    OpSpec conv = OpOf(OpKind::kConv, {0});
    conv.out_channels = 32;
    conv.kernel = {3, 3};
    conv.padding = {1, 1};
    layers.push_back({conv, OpOf(OpKind::kRelu, {1})});
  }
  layers.push_back({OpOf(OpKind::kFlatten, {0}), LinearOp(5, {1})});
  const ModelSpec model = ModelOf({8, 12, 12}, 5, layers);
  const auto train = [&](Backend& backend) {
    auto net = *IntegerPipeline::Make(model, {}, 4, &backend, **FindRecipe("niti"));
    for (size_t i = 0; i < net.weight_count(); ++i) {
      const auto count = static_cast<int64_t>(net.Weight(i).mantissas.size());
      net.SetWeight(i, {GoldenMantissas(10 + i, count), -9});
    }
    const std::vector<float> x = RandomValues(5, 0, 4 * 8 * 144);
    const std::vector<int32_t> labels = RandomLabels(5, 0, 4, 5);
    EXPECT_EQ(net.ForwardBackward(x.data(), labels.data(), {}), absl::OkStatus());
    return Gradients(net);
  };
  std::vector<std::unique_ptr<Backend>> processors;
  const BackendTraits dsp = {.name = "hexagon",
                             .numerics_class = "hexagon",
                             .keeps_values = true,
                             .rates = {.is_timed = false,
                                       .int8_macs_per_second = 200e9,
                                       .bytes_per_second = 10e9,
                                       .instruction_seconds = 5e-6}};
  processors.push_back(
      std::make_unique<WatchedBackend>((*MakeBackend("cpu", 1))->traits(), Nothing));
  processors.push_back(std::make_unique<WatchedBackend>(
      dsp, Nothing, std::vector<OpCode>{OpCode::kInt8ConvForward, OpCode::kInt8ConvInputGradient}));
  MixedOptions options;
  options.counts = true;
  options.switch_seconds["hexagon"] = 1e-6;
  const auto backend = *MakeCoScheduler(std::move(processors), options);
  const Program program = *CompileStage(model, 0, 4, 4, **FindRecipe("niti"));
  const ProgramSchedule schedule = *backend->Schedule(program);
  const auto& weight_gradients = schedule.parts[static_cast<size_t>(Part::kWeightGradient)];
  const auto early = [](const ScheduledInstruction& one) {
    return one.processor == 1 && one.begin_seconds < 0;
  };
  EXPECT_GE(std::count_if(weight_gradients.begin(), weight_gradients.end(), early), 2);
  const std::vector<int>& cuts = schedule.grouping[static_cast<size_t>(Part::kInputGradient)];
  EXPECT_GT(cuts.back(), 1) << "the host's input-gradients are cut";
  double work = 0;
  for (const ScheduledInstruction& one : weight_gradients) work += one.seconds + one.switch_seconds;
  EXPECT_LT(schedule.PartSeconds(Part::kWeightGradient), work / 2);
  EXPECT_EQ(train(*backend), train(*std::move(*MakeBackend("ref", 1))));
}

// What a processor wrote it does not get again: of a step with everything elsewhere the samples
// move once, once more for the weight-gradient, the weights once, the gradients of the logits
// never.
TEST(MixedLanes, WhatAProcessorWroteStaysThere) {
  const auto mixed = *MakeCoScheduler("cpu,ref@niti_update=cpu+*=ref", BackendSettings());
  auto net = MakeNet(*mixed);
  EXPECT_EQ(TrainOnce(net), absl::OkStatus());
  EXPECT_EQ(Gradients(net), ExpectedGradients());
  const Program& program = net.stages[0].program;
  int64_t weight_bytes = 0, gradient_bytes = 0;
  for (const StateTensor& tensor : program.state.tensors) {
    if (tensor.spec.role != TensorRole::kWeight) continue;  // exponents are in tails
    const int64_t elements = tensor.spec.shape.elements();
    weight_bytes += elements + 64;
    gradient_bytes += elements * static_cast<int64_t>(SizeOf(tensor.gradient_dtype)) + 64;
  }
  const CoScheduler::Moved moved = mixed->moved();
  const int64_t output_bytes = 4 * 5 + 64;
  // Weights move twice: these areas are not the backend's, so nobody knows that they did not
  // change.
  EXPECT_EQ(moved.bytes_to_processors, program.input_bytes + 2 * weight_bytes);
  EXPECT_EQ(moved.bytes_from_processors, gradient_bytes + output_bytes);
  EXPECT_EQ(moved.segments, 3);
}

}  // namespace
}  // namespace runnel::mixed_lanes_test
