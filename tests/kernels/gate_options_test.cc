// Options of gates in integers: samples of one option are computed as a micro-batch of these alone
// with the option's bits, and the bytes are the same on ref and on every instruction set.

#include "kernels/ir/gate_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "kernels/backends/host/live_samples.h"
#include "kernels/backends/ref/ref_backend.h"
#include "kernels/ir/arithmetic/sample_choice.h"
#include "kernels/ir/compiler.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "tests/kernels/grid_training.h"

namespace runnel::gate_options_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kRecipe = "sbm:8,8,8";
constexpr int kOfGate = 2;  // operators that a held gate puts in front

// A block of two convolutions, drawn.
struct Drawn {
  int64_t batch = 1, channels = 1, inner = 1, side = 1;
  std::array<int64_t, 2> kernel = {1, 1};
  int64_t groups = 1;
  bool bias = false, norms = false;
  std::string gates;

  int64_t image() const { return channels * side * side; }
};

Drawn Draw(uint64_t seed) {
  const CounterRandom random(seed, RandomPurpose::kTest, 11, 0);
  uint64_t at = 0;
  const auto pick = [&](uint32_t least, uint32_t most) {
    return static_cast<int64_t>(least + random.Below(at++, most - least + 1));
  };
  Drawn drawn = {
      .batch = pick(1, 9), .channels = pick(1, 19), .inner = pick(1, 35), .side = pick(3, 9)};
  if (pick(0, 2) > 0) drawn.kernel = {3, 3};
  if (pick(0, 4) == 0) drawn.inner = drawn.groups = drawn.channels;
  drawn.bias = pick(0, 1) == 0;
  constexpr const char* kOptions[] = {"0,3,4,6/6,6,8,12", "0,4/6,6", "0,2,8/2,16,16",
                                      "0,3,32/6,6,32"};
  constexpr const char* kHeld[] = {"0", "0.4", "0.8", "1"};
  drawn.gates = absl::StrCat("ff:", kOptions[pick(0, 3)], "@hold:", kHeld[pick(0, 3)]);
  return drawn;
}

OpSpec Op(OpKind kind, std::vector<int32_t> inputs) {
  return {.kind = kind, .inputs = std::move(inputs)};
}
OpSpec Conv(const Drawn& drawn, int32_t input, int64_t out) {
  OpSpec conv = Op(OpKind::kConv, {input});
  conv.out_channels = out;
  conv.kernel = drawn.kernel;
  conv.padding = {drawn.kernel[0] / 2, drawn.kernel[1] / 2};
  conv.groups = drawn.groups;
  conv.bias = drawn.bias;
  return conv;
}

// The drawn block in front of a linear layer. `alone`: without sum, behind as many operators as the
// gate puts in front, which change no positive value (draws count operators).
ModelSpec BlockModel(const Drawn& drawn, bool alone) {
  ModelSpec model{"block", {drawn.channels, drawn.side, drawn.side}, 3, {}};
  std::vector<OpSpec> way;
  const auto last = [&way] { return static_cast<int32_t>(way.size()); };
  for (int i = 0; alone && i < kOfGate; ++i) way.push_back(Op(OpKind::kRelu, {last()}));
  const auto add = [&](const OpSpec& conv) {
    way.push_back(conv);
    if (drawn.norms) way.push_back(Op(OpKind::kBatchNorm, {last()}));
  };
  model.layers.push_back({"stem", {Conv(drawn, 0, drawn.channels), Op(OpKind::kRelu, {1})}});
  add(Conv(drawn, last(), drawn.inner));
  way.push_back(Op(OpKind::kRelu, {last()}));
  add(Conv(drawn, last(), drawn.channels));
  if (!alone) {
    way.push_back(Op(OpKind::kAdd, {last(), 0}));
    way.push_back(Op(OpKind::kRelu, {last()}));
  }
  model.layers.push_back({"block", way});
  OpSpec linear = Op(OpKind::kLinear, {1});
  linear.out_channels = 3;
  model.layers.push_back({"head", {Op(OpKind::kGlobalAvgPool, {0}), linear}});
  return model;
}

StepContext Context() {
  StepContext context;
  context.run_seed = 9;
  context.sequence = Sequence(4);
  return context;
}

// What training a block with one micro-batch gives.
struct Results {
  std::vector<float> y, dx;
  std::vector<std::vector<float>> gradients, statistics;

  friend bool operator==(const Results&, const Results&) = default;
};

Results Train(const ModelSpec& model, int64_t batch, Backend* backend, const std::vector<float>& x,
              const std::vector<float>& dy, const GridBits& bits,
              const std::vector<std::byte>* statistics_before = nullptr,
              std::vector<std::byte>* statistics_behind = nullptr) {
  Results results;
  auto stage = TestStage::Make(model, 1, 1, batch, backend, Checks::kOn, Steps::kApart, kRecipe);
  EXPECT_TRUE(stage.ok()) << stage.status();
  if (!stage.ok()) return results;
  TestStage& s = **stage;
  FillState(s.program.state, 3, s.data(Storage::kParameters), s.data(Storage::kStatistics));
  std::byte* statistics = s.bindings[Storage::kStatistics];
  if (statistics_before != nullptr && !statistics_before->empty())
    std::memcpy(statistics, statistics_before->data(), statistics_before->size());
  std::copy(x.begin(), x.end(), s.data(Storage::kInput));
  std::copy(dy.begin(), dy.end(), s.data(Storage::kOutputGradient));
  StepContext context = Context();
  context.grid_bits = bits;
  for (const Part part : {Part::kForward, Part::kInputGradient, Part::kWeightGradient}) {
    const absl::Status status = s.Run(part, context);
    EXPECT_TRUE(status.ok()) << status;
    const float* y = s.data(Storage::kOutput);
    if (part == Part::kForward) results.y.assign(y, y + x.size());
  }
  const float* dx = s.data(Storage::kInputGradient);
  results.dx.assign(dx, dx + x.size());
  results.gradients = s.Tensors(Storage::kGradients);
  results.statistics = s.Tensors(Storage::kStatistics);
  if (statistics_behind != nullptr)
    statistics_behind->assign(statistics, statistics + s.bytes(Storage::kStatistics));
  return results;
}

std::vector<float> Values(int64_t count, uint64_t stream, bool positive) {
  const CounterRandom random(5, RandomPurpose::kTest, stream, 0);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(random.Normal(i));
    values[i] = positive ? std::abs(value) : value;
  }
  return values;
}

std::vector<float> Rows(const std::vector<float>& values, const std::vector<int64_t>& samples,
                        int64_t size) {
  std::vector<float> rows;
  for (const int64_t sample : samples) {
    const auto from = values.begin() + sample * size;
    rows.insert(rows.end(), from, from + size);
  }
  return rows;
}

// The samples of each option, as layer 1 draws them.
std::vector<std::vector<int64_t>> SamplesByOption(const OpSpec& gate, int64_t batch) {
  std::vector<std::vector<int64_t>> samples(static_cast<size_t>(OptionCount(gate)));
  const CounterRandom draws = GateDraws(Context().run_seed, 1, Context().sequence);
  for (int64_t i = 0; i < batch; ++i)
    samples[static_cast<size_t>(HeldOption(gate, draws, i))].push_back(i);
  return samples;
}

// From blocks without a gate, one option after the other, in FP32: gradients are added in the order of
// options, and each range follows the one before.
Results OptionByOption(const Drawn& drawn, const OpSpec& gate, Backend* backend,
                       const std::vector<float>& x, const std::vector<float>& dy) {
  const ModelSpec alone = BlockModel(drawn, /*alone=*/true);
  const int64_t size = drawn.image();
  std::vector<float> way(x.size()), dway(x.size());
  Results sums = Train(alone, 1, backend, Rows(x, {0}, size), Rows(dy, {0}, size), {});
  for (std::vector<float>& tensor : sums.gradients) std::fill(tensor.begin(), tensor.end(), 0.0f);
  std::vector<std::byte> state;
  bool is_first = true;
  const auto samples = SamplesByOption(gate, drawn.batch);
  for (size_t option = 0; option < samples.size(); ++option) {
    if (samples[option].empty() || Skips(gate, static_cast<int>(option))) continue;
    const auto count = static_cast<int64_t>(samples[option].size());
    const GridBits bits = BitsOfOption(gate, static_cast<int>(option));
    const std::vector<float> own = Rows(x, samples[option], size);
    std::vector<float> error = Rows(dy, samples[option], size);
    // The sum's gradient leads on where the sum is positive, which a first run finds.
    const Results forward = Train(alone, count, backend, own, error, bits, &state);
    for (size_t e = 0; e < own.size(); ++e)
      error[e] = std::max(0.0f, forward.y[e] + own[e]) > 0 ? error[e] : 0;
    std::vector<std::byte> behind;
    const Results both = Train(alone, count, backend, own, error, bits, &state, &behind);
    state = behind;
    sums.statistics = both.statistics;
    for (size_t t = 0; t < both.gradients.size(); ++t) {
      for (size_t e = 0; e < both.gradients[t].size(); ++e)
        sums.gradients[t][e] =
            is_first ? both.gradients[t][e] : sums.gradients[t][e] + both.gradients[t][e];
    }
    is_first = false;
    for (size_t row = 0; row < samples[option].size(); ++row) {
      const auto to = samples[option][row] * size, from = static_cast<int64_t>(row) * size;
      std::copy_n(both.y.begin() + from, size, way.begin() + to);
      std::copy_n(both.dx.begin() + from, size, dway.begin() + to);
    }
  }
  sums.y.resize(x.size());
  sums.dx.resize(x.size());
  for (size_t e = 0; e < x.size(); ++e) {
    sums.y[e] = std::max(0.0f, x[e] + way[e]);
    sums.dx[e] = (sums.y[e] > 0 ? dy[e] : 0) + dway[e];
  }
  if (is_first) {  // nobody ran
    auto stage = TestStage::Make(alone, 1, 1, 1, backend, Checks::kOn, Steps::kApart, kRecipe);
    FillState((*stage)->program.state, 3, (*stage)->data(Storage::kParameters),
              (*stage)->data(Storage::kStatistics));
    sums.statistics = (*stage)->Tensors(Storage::kStatistics);
  }
  return sums;
}

Results TrainGated(const Drawn& drawn, Backend* backend, const std::vector<float>& x,
                   const std::vector<float>& dy) {
  const ModelSpec gated = *AddGates(BlockModel(drawn, /*alone=*/false), drawn.gates);
  return Train(gated, drawn.batch, backend, x, dy, {});
}

// Of the drawn blocks some have batches in which nobody runs, and some several options.
TEST(GateOptions, AreMicroBatchesOfTheirOwnBits) {
  int nobody = 0, several = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Drawn drawn = Draw(seed);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", drawn.gates, ", ", drawn.batch, " x ",
                              drawn.channels, " -> ", drawn.inner, " of ", drawn.side));
    const int64_t count = drawn.batch * drawn.image();
    const std::vector<float> x = Values(count, 1, true), dy = Values(count, 2, false);
    const ModelSpec gated = *AddGates(BlockModel(drawn, /*alone=*/false), drawn.gates);
    const OpSpec& gate = gated.layers[1].ops[0];
    auto ref = *MakeBackend("ref", 1);
    const Results results = TrainGated(drawn, ref.get(), x, dy);
    const Results expected = OptionByOption(drawn, gate, ref.get(), x, dy);
    EXPECT_EQ(results.y, expected.y);
    EXPECT_EQ(results.dx, expected.dx);
    EXPECT_EQ(results.gradients, expected.gradients);
    EXPECT_EQ(results.statistics, expected.statistics);
    for (const std::string& set : CpuInstructionSets()) {
      for (const int threads : {1, 3}) {
        auto cpu = *MakeBackend("cpu:" + set, threads);
        EXPECT_TRUE(TrainGated(drawn, cpu.get(), x, dy) == results) << set << ", " << threads;
      }
    }
    int options = 0;
    for (const std::vector<int64_t>& samples : SamplesByOption(gate, drawn.batch))
      options += samples.empty() ? 0 : 1;
    several += options > 2 ? 1 : 0;
    nobody += SamplesByOption(gate, drawn.batch)[0].size() == static_cast<size_t>(drawn.batch);
  }
  EXPECT_GT(nobody, 5);
  EXPECT_GT(several, 5);
}

// Whole steps with batch norms between products: those that run for all options at once are fused, and
// change no byte.
TEST(GateOptions, FusedStepsChangeNoByte) {
  for (const char* gates : {"ff:0,3,6/6,6,12@hold:0.3", "ff:0,3,6/6,6,12@beta:0.01",
                            "ff:0,4/6,12@hold:0.4", "ff:0,4/6,12@hold:0.9"}) {
    Drawn drawn = Draw(7);
    drawn.norms = true;
    drawn.groups = 1;
    const ModelSpec model = *AddGates(BlockModel(drawn, /*alone=*/false), gates);
    std::vector<std::vector<std::vector<float>>> parameters;
    for (const bool fused : {false, true}) {
      auto backend = *MakeCappedCpuBackend(CpuInstructionSets().front(), 1, fused);
      auto pipeline =
          *TestPipeline::Make(model, {1}, 6, backend.get(), 3, Checks::kOn, Steps::kApart, kRecipe);
      const std::vector<float> x = Values(6 * drawn.image(), 1, true);
      const std::vector<int32_t> labels = {0, 1, 2, 0, 1, 2};
      StepContext context = Context();
      context.step_labels = 6;
      context.learning_rate = 0.01;
      for (int step = 0; step < 12; ++step) {
        ASSERT_TRUE(pipeline.ForwardBackward(x.data(), labels.data(), context).ok());
        ASSERT_TRUE(pipeline.Update(context).ok());
        context.sequence = context.sequence.next();
      }
      parameters.push_back(pipeline.Tensors(Storage::kParameters));
    }
    EXPECT_EQ(parameters[0], parameters[1]) << gates;
  }
}

// A program with gates has no product of floats but those in front of a choice.
TEST(GateOptions, ProductsAreThoseOfCodes) {
  const Recipe& recipe = **FindRecipe(kRecipe);
  const ModelSpec model = *AddGates(*MakeModel("resnet8"), "ff:0,3,4,6/6,6,8,12");
  const Program program = *CompileStage(model, 0, model.layer_count() - 1, 4, recipe,
                                        {.max_batch = 4, .integer_products = true});
  int codes = 0;
  for (const std::vector<Instruction>& part : program.parts) {
    for (const Instruction& instruction : part) {
      if (!TraitsOf(instruction.code).is_product()) continue;
      const LayerSpec& layer = model.layers[static_cast<size_t>(instruction.layer)];
      const bool is_of_gate = LeadsToGate(layer, static_cast<size_t>(instruction.op));
      const bool is_wide = instruction.gate != kNoGate && instruction.grid.is_gradient;
      EXPECT_EQ(ProductNumbers(recipe, instruction),
                is_of_gate ? "emulated" : (is_wide ? "int16" : "int8"))
          << instruction.layer << "." << instruction.op << " " << Name(instruction.code);
      codes += is_of_gate ? 0 : 1;
    }
  }
  EXPECT_GT(codes, 40);
}

// The first two instructions, one behind the other, that run for each option of a gate.
std::pair<const Instruction*, const Instruction*> FirstGroup(const Program& program) {
  const std::vector<Instruction>& forward = program.part(Part::kForward);
  for (size_t i = 0; i + 1 < forward.size(); ++i) {
    if (RunsByOption(forward[i]) && RunsByOption(forward[i + 1]) &&
        forward[i].gate == forward[i + 1].gate)
      return {&forward[i], &forward[i + 1]};
  }
  return {nullptr, nullptr};
}

// A memory plan where the first option would write over what the next one reads is refused before it
// runs.
TEST(GateOptions, ValuesOfAGroupThatShareMemoryAreRefused) {
  for (const char* gates : {"ff:0,3,4,6/6,6,8,12", "ff:0,8/8,8"}) {
    SCOPED_TRACE(gates);
    const ModelSpec model = *AddGates(*MakeModel("resnet8"), gates);
    for (const std::string backend : {"ref", "cpu"}) {
      const std::unique_ptr<Backend> made =
          backend == "ref" ? *MakeRefBackend(1) : *MakeCpuBackend(1);
      Program program = *CompileStage(model, 0, model.layer_count() - 1, 4, **FindRecipe(kRecipe),
                                      {.max_batch = 4, .integer_products = true});
      const absl::Status planned = made->Prepare(program).status();
      EXPECT_TRUE(planned.ok()) << planned;
      const auto [first, next] = FirstGroup(program);
      ASSERT_NE(first, nullptr);
      const Buffer& read = program.buffers[static_cast<size_t>(first->inputs[0])];
      Buffer& written = program.buffers[static_cast<size_t>(next->outputs[0])];
      ASSERT_NE(first->inputs[0], next->outputs[0]);
      written.storage = read.storage;
      written.offset_bytes = read.offset_bytes;
      const absl::Status shared = made->Prepare(program).status();
      if (LevelsOf(*GatesByChoice(program)[static_cast<size_t>(first->gate)]) > 1) {
        EXPECT_THAT(std::string(shared.message()), HasSubstr("share memory")) << backend;
      } else {
        EXPECT_TRUE(shared.ok()) << "one option reads nothing behind another: " << shared;
      }
    }
  }
}

// A fused step runs as a whole, once or for each option.
TEST(GateOptions, StepsThatMixWhatRunsByOptionAreRefused) {
  const ModelSpec model = *AddGates(*MakeModel("resnet8"), "ff:0,3,4,6/6,6,8,12");
  const Program program = *CompileStage(model, 0, model.layer_count() - 1, 4, **FindRecipe(kRecipe),
                                        {.max_batch = 4, .integer_products = true});
  const std::vector<Instruction>& forward = program.part(Part::kForward);
  const auto by_option = std::find_if(forward.begin(), forward.end(), RunsByOption);
  ASSERT_NE(by_option, forward.end());
  const auto other = std::find_if(forward.begin(), forward.end(), [&](const Instruction& one) {
    return one.gate == by_option->gate && !RunsByOption(one);
  });
  ASSERT_NE(other, forward.end());
  using Steps = std::vector<host::LiveSamples::Step>;
  EXPECT_TRUE(host::LiveSamples::Check(program, Steps{{&*by_option}, {&*other}}).ok());
  for (const Steps& steps : {Steps{{&*by_option, &*other}}, Steps{{&*other, &*by_option}}}) {
    EXPECT_THAT(std::string(host::LiveSamples::Check(program, steps).message()),
                HasSubstr("one runs for each option"));
  }
}

// As training would have seen them.
void KeepRanges(TestStage& stage) {
  for (const StateTensor& tensor : stage.program.state.tensors) {
    if (tensor.spec.role != TensorRole::kInputRange) continue;
    float* range = stage.data(tensor.storage) + tensor.offset_bytes / 4;
    range[0] = -0.5f;
    range[1] = 4;
  }
}

// With kept ranges a sample is evaluated alike, whoever stands beside it.
TEST(GateOptions, EvaluationIsSampleBySample) {
  Drawn drawn = Draw(3);
  drawn.norms = true;
  const ModelSpec model =
      *AddGates(BlockModel(drawn, /*alone=*/false), "ff:0,3,4,6/6,6,8,12@beta:0.01");
  constexpr int64_t kBatch = 7;
  std::vector<float> x = Values(kBatch * drawn.image(), 1, true);
  for (size_t e = 0; e < x.size(); ++e)
    x[e] *= static_cast<float>(1 + e / static_cast<size_t>(drawn.image()) * 3);
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    const auto evaluate = [&](const std::vector<float>& samples) {
      const auto count = static_cast<int64_t>(samples.size()) / drawn.image();
      auto stage =
          *TestStage::Make(model, 1, 1, count, backend.get(), Checks::kOn, Steps::kApart, kRecipe);
      FillState(stage->program.state, 3, stage->data(Storage::kParameters),
                stage->data(Storage::kStatistics));
      KeepRanges(*stage);
      std::copy(samples.begin(), samples.end(), stage->data(Storage::kInput));
      EXPECT_TRUE(stage->Run(Part::kForwardEval, Context()).ok());
      const float* y = stage->data(Storage::kOutput);
      return std::vector<float>(y, y + samples.size());
    };
    const std::vector<float> whole = evaluate(x);
    for (int64_t i = 0; i < kBatch; ++i)
      EXPECT_EQ(Rows(whole, {i}, drawn.image()), evaluate(Rows(x, {i}, drawn.image())))
          << name << ", sample " << i;
  }
}

}  // namespace
}  // namespace runnel::gate_options_test
