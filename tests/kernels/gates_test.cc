// Gates: samples that skip are not computed, and those that run give what a micro-batch of these
// alone gives.

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ir/arithmetic/sample_choice.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/work_tally.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "tests/kernels/grid_training.h"

namespace runnel::gates_test {
namespace {

constexpr int64_t kBatch = 6;
constexpr int64_t kImage = 4 * 6 * 6;
constexpr int64_t kSampleMacs = 3 * 2 * kImage * 4 * 9;  // of a block: passes, convolutions

OpSpec Conv(int32_t input) {
  return {.kind = OpKind::kConv,
          .inputs = {input},
          .out_channels = 4,
          .kernel = {3, 3},
          .padding = {1, 1}};
}
OpSpec Op(OpKind kind, std::vector<int32_t> inputs) {
  return {.kind = kind, .inputs = std::move(inputs)};
}

// Two blocks between a convolution and a linear layer. `alone`: only the ways that gates pack, behind
// as many operators as a gate puts in front, which change no positive value: draws count operators.
ModelSpec Blocks(bool alone = false) {
  ModelSpec model{"blocks", {4, 6, 6}, 3, {}};
  model.layers.push_back({"stem", {Conv(0), Op(OpKind::kRelu, {1})}});
  std::vector<OpSpec> way;
  const auto last = [&way] { return static_cast<int32_t>(way.size()); };
  if (alone) {
    way.push_back(Op(OpKind::kRelu, {0}));
    way.push_back(Op(OpKind::kRelu, {1}));
  }
  way.push_back(Conv(last()));
  way.push_back(Op(OpKind::kBatchNorm, {last()}));
  way.push_back(Op(OpKind::kRelu, {last()}));
  way.push_back(Conv(last()));
  way.push_back(Op(OpKind::kBatchNorm, {last()}));
  if (!alone) {
    way.push_back(Op(OpKind::kAdd, {5, 0}));
    way.push_back(Op(OpKind::kRelu, {6}));
  }
  model.layers.push_back({"one", way});
  model.layers.push_back({"two", way});
  OpSpec linear = Op(OpKind::kLinear, {1});
  linear.out_channels = 3;
  model.layers.push_back({"head", {Op(OpKind::kGlobalAvgPool, {0}), linear}});
  return model;
}
ModelSpec Gated(const std::string& gates) { return *AddGates(Blocks(), gates); }

// Counts what is done.
struct Tally final : WorkTally {
  void AddProduct(const Instruction&, const GridBits& bits, int64_t macs) override {
    done += macs;
    by_bits[bits.forward] += macs;
  }
  int64_t done = 0;
  std::map<int, int64_t> by_bits;
};

void Fill(float* values, int64_t count, uint64_t stream) {
  const CounterRandom random(5, RandomPurpose::kTest, stream, 0);
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(random.Normal(static_cast<uint64_t>(i)));
}

// Layer 1 alone, trained with one micro-batch.
struct Block {
  Block(const ModelSpec& model, int64_t batch, Backend* backend, const char* recipe)
      : stage(*TestStage::Make(model, 1, 1, batch, backend, Checks::kOn, Steps::kApart, recipe)) {
    FillState(stage->program.state, 3, stage->data(Storage::kParameters),
              stage->data(Storage::kStatistics));
  }
  void Train(StepContext context) {
    for (const Part part : {Part::kForward, Part::kInputGradient, Part::kWeightGradient}) {
      const absl::Status status = stage->Run(part, context);
      ASSERT_TRUE(status.ok()) << status;
      if (part != Part::kForward) continue;
      y.assign(stage->data(Storage::kOutput),
               stage->data(Storage::kOutput) + stage->program.output.elements());
    }
  }
  std::unique_ptr<TestStage> stage;
  std::vector<float> y;
};

StepContext Context() {
  StepContext context;
  context.run_seed = 9;
  context.sequence = Sequence(4);
  return context;
}

// The rows of a held gate's samples, as layer 1 draws them.
std::vector<int64_t> Running(const ModelSpec& model) {
  const OpSpec& gate = model.layers[1].ops[0];
  const CounterRandom draws = GateDraws(Context().run_seed, 1, Context().sequence);
  std::vector<int64_t> running;
  for (int64_t i = 0; i < kBatch; ++i)
    if (!Skips(gate, HeldOption(gate, draws, i))) running.push_back(i);
  return running;
}

// Beside the block without gate and sum on the samples that run alone: outputs, both gradients and
// statistics, to the bit.
void ExpectLikeThoseAlone(const std::string& backend_name, const char* recipe,
                          const std::string& gates, const GridBits& bits) {
  SCOPED_TRACE(backend_name + " " + recipe + " " + gates);
  auto backend = *MakeBackend(backend_name, 1);
  const ModelSpec model = Gated(gates);
  const std::vector<int64_t> running = Running(model);
  const auto count = static_cast<int64_t>(running.size());
  Block gated(model, kBatch, backend.get(), recipe);
  std::vector<float> x(kBatch * kImage), dy(kBatch * kImage);
  Fill(x.data(), kBatch * kImage, 1);
  Fill(dy.data(), kBatch * kImage, 2);
  for (float& value : x) value = std::fabs(value);
  std::copy(x.begin(), x.end(), gated.stage->data(Storage::kInput));
  std::copy(dy.begin(), dy.end(), gated.stage->data(Storage::kOutputGradient));
  Tally tally;
  StepContext context = Context();
  context.work = &tally;
  gated.Train(context);
  EXPECT_EQ(tally.done, count * kSampleMacs);
  EXPECT_EQ(tally.by_bits[bits.forward], count * kSampleMacs);
  const std::vector<float>& y = gated.y;
  const float* dx = gated.stage->data(Storage::kInputGradient);
  ASSERT_GT(count, 1);
  Block alone(Blocks(/*alone=*/true), count, backend.get(), recipe);
  for (size_t row = 0; row < running.size(); ++row) {
    const int64_t at = running[row] * kImage;
    std::copy_n(&x[static_cast<size_t>(at)], kImage,
                alone.stage->data(Storage::kInput) + static_cast<int64_t>(row) * kImage);
    for (int64_t e = 0; e < kImage; ++e)
      alone.stage->data(Storage::kOutputGradient)[static_cast<int64_t>(row) * kImage + e] =
          y[static_cast<size_t>(at + e)] > 0 ? dy[static_cast<size_t>(at + e)] : 0;
  }
  StepContext of_bits = Context();
  of_bits.grid_bits = bits;
  alone.Train(of_bits);
  EXPECT_EQ(gated.stage->Tensors(Storage::kGradients), alone.stage->Tensors(Storage::kGradients));
  EXPECT_EQ(gated.stage->Tensors(Storage::kStatistics), alone.stage->Tensors(Storage::kStatistics));
  size_t row = 0;
  for (int64_t i = 0; i < kBatch; ++i) {
    const bool runs = row < running.size() && running[row] == i;
    for (int64_t e = 0; e < kImage; ++e) {
      const int64_t at = i * kImage + e, of_row = static_cast<int64_t>(row) * kImage + e;
      const float way = runs ? alone.y[static_cast<size_t>(of_row)] : 0;
      ASSERT_EQ(y[static_cast<size_t>(at)], std::max(0.0f, x[static_cast<size_t>(at)] + way))
          << i << " " << e;
      const float g = y[static_cast<size_t>(at)] > 0 ? dy[static_cast<size_t>(at)] : 0;
      ASSERT_EQ(dx[at], g + (runs ? alone.stage->data(Storage::kInputGradient)[of_row] : 0));
    }
    row += runs ? 1 : 0;
  }
}

TEST(Gates, SamplesThatRunAreAMicroBatchOfTheirOwn) {
  for (const std::string backend : {"ref", "cpu", "cpu:portable"}) {
    ExpectLikeThoseAlone(backend, "fp32", "ff:0,32/32,32@hold:0.5", {});
    ExpectLikeThoseAlone(backend, "fp32", "ff:0,32/32,32@hold:0", {});
    ExpectLikeThoseAlone(backend, "sbm:8,8,8", "ff:0,4/6,6@hold:0.5", {4, 6});
  }
}

// Gradients and statistics of a block; all of its samples skip, or all but one.
TEST(Gates, FewSamplesLeaveStatisticsAsTheyAre) {
  for (const std::string backend_name : kGridBackends) {
    SCOPED_TRACE(backend_name);
    auto backend = *MakeBackend(backend_name, 1);
    ModelSpec model = Gated("ff:0,32/32,32@hold:1");
    Block none(model, kBatch, backend.get(), "fp32");
    std::vector<std::vector<float>> zero = none.stage->Tensors(Storage::kGradients);
    const auto statistics = none.stage->Tensors(Storage::kStatistics);
    Fill(none.stage->data(Storage::kInput), kBatch * kImage, 1);
    Fill(none.stage->data(Storage::kOutputGradient), kBatch * kImage, 2);
    Tally tally;
    StepContext context = Context();
    context.work = &tally;
    none.Train(context);
    EXPECT_EQ(tally.done, 0);
    for (std::vector<float>& tensor : zero) std::fill(tensor.begin(), tensor.end(), 0.0f);
    EXPECT_EQ(none.stage->Tensors(Storage::kGradients), zero);
    EXPECT_EQ(none.stage->Tensors(Storage::kStatistics), statistics);

    model = Gated("ff:0,32/32,32@hold:0");
    Block one(model, 1, backend.get(), "fp32");
    Fill(one.stage->data(Storage::kInput), kImage, 1);
    Fill(one.stage->data(Storage::kOutputGradient), kImage, 2);
    one.Train(Context());
    EXPECT_EQ(one.stage->Tensors(Storage::kStatistics), statistics);
    // The derivative at one weight, by running statistics.
    const auto loss = [&](float by) {
      Block moved(model, 1, backend.get(), "fp32");
      Fill(moved.stage->data(Storage::kInput), kImage, 1);
      moved.stage->data(Storage::kParameters)[3] += by;
      EXPECT_TRUE(moved.stage->Run(Part::kForward, Context()).ok());
      double sum = 0;
      std::vector<float> dy(kImage);
      Fill(dy.data(), kImage, 2);
      for (int64_t e = 0; e < kImage; ++e)
        sum += static_cast<double>(dy[static_cast<size_t>(e)]) *
               moved.stage->data(Storage::kOutput)[e];
      return sum;
    };
    const double slope = (loss(1e-3f) - loss(-1e-3f)) / 2e-3;
    EXPECT_NEAR(one.stage->Tensors(Storage::kGradients)[0][3], slope,
                0.02 * std::fabs(slope) + 0.02);
  }
}

// Options of equal bits are one option, but for the order in which rows lie and sums are taken.
TEST(Gates, OptionsAreComputedOnTheirSamples) {
  for (const std::string backend_name : kGridBackends) {
    SCOPED_TRACE(backend_name);
    auto backend = *MakeBackend(backend_name, 1);
    ModelSpec one = Gated("ff:0,32/32,32@hold:0.3"), two = one;
    two.layers[1].ops[0].options = {0, 32, 32, 32, 32, 32};
    Block whole(one, kBatch, backend.get(), "fp32"), parts(two, kBatch, backend.get(), "fp32");
    for (Block* block : {&whole, &parts}) {
      Fill(block->stage->data(Storage::kInput), kBatch * kImage, 1);
      Fill(block->stage->data(Storage::kOutputGradient), kBatch * kImage, 2);
      block->Train(Context());
    }
    for (size_t e = 0; e < whole.y.size(); ++e) ASSERT_NEAR(whole.y[e], parts.y[e], 1e-5);
    const auto expected = whole.stage->Tensors(Storage::kGradients);
    const auto found = parts.stage->Tensors(Storage::kGradients);
    for (size_t t = 0; t < expected.size(); ++t)
      for (size_t e = 0; e < expected[t].size(); ++e)
        ASSERT_NEAR(expected[t][e], found[t][e], 1e-4) << t << " " << e;
  }
  auto backend = *MakeBackend("cpu", 1);
  const ModelSpec model = Gated("ff:0,3,8/6,6,12@hold:0.3");
  Block block(model, kBatch, backend.get(), "sbm:8,8,8");
  Tally tally;
  StepContext context = Context();
  context.work = &tally;
  block.Train(context);
  const CounterRandom draws = GateDraws(context.run_seed, 1, context.sequence);
  std::map<int, int64_t> claimed;
  for (int64_t i = 0; i < kBatch; ++i) {
    const OpSpec& gate = model.layers[1].ops[0];
    const int option = HeldOption(gate, draws, i);
    if (!Skips(gate, option)) claimed[BitsOfOption(gate, option).forward] += kSampleMacs;
  }
  EXPECT_EQ(tally.by_bits, claimed);
  EXPECT_EQ(claimed.size(), 2u) << "both were drawn";
}

// ---- gates that learn

constexpr int kGateTensors = 6;  // weight and bias of each linear layer of a gate
using Tensors = std::vector<std::vector<float>>;

// A gate's logits in double, by its tensors.
std::vector<double> LogitsOf(const Tensors& tensors, const float* sample) {
  std::vector<double> values;
  for (int64_t c = 0; c < 4; ++c) {
    double sum = 0;
    for (int64_t e = 0; e < kImage / 4; ++e) sum += static_cast<double>(sample[c * kImage / 4 + e]);
    values.push_back(sum / (kImage / 4.0));
  }
  for (size_t layer = 0; layer < 3; ++layer) {
    const std::vector<float>&weight = tensors[2 * layer], &bias = tensors[2 * layer + 1];
    std::vector<double> next(bias.begin(), bias.end());
    for (size_t o = 0; o < next.size(); ++o) {
      for (size_t k = 0; k < values.size(); ++k)
        next[o] += static_cast<double>(weight[o * values.size() + k]) * values[k];
      if (layer == 0) next[o] = std::max(0.0, next[o]);
    }
    values = next;
  }
  return values;
}

// What straight-through gradients are those of: the sum of p_k * worth_k over samples and options,
// where only p depends on anything.
double SurrogateLoss(const Tensors& tensors, const std::vector<float>& x,
                     const std::vector<std::array<double, 2>>& worth) {
  double loss = 0;
  for (size_t i = 0; i < worth.size(); ++i) {
    const std::vector<double> logits = LogitsOf(tensors, &x[i * kImage]);
    const double skips = 1 / (1 + std::exp(logits[1] - logits[0]));
    loss += skips * worth[i][0] + (1 - skips) * worth[i][1];
  }
  return loss;
}

// The block of a stage with a gate, without gate and sum, on some of its samples.
std::vector<float> BlockAlone(Block& gated, const std::vector<float>& x,
                              const std::vector<size_t>& samples, Part part, Backend* backend) {
  Block alone(Blocks(/*alone=*/true), static_cast<int64_t>(samples.size()), backend, "fp32");
  const std::vector<StateTensor>& from = gated.stage->program.state.tensors;
  for (size_t t = 0; t < alone.stage->program.state.tensors.size(); ++t) {
    const StateTensor &to = alone.stage->program.state.tensors[t], &of = from[t + kGateTensors];
    std::copy_n(gated.stage->data(of.storage) + of.offset_bytes / 4, of.spec.shape.elements(),
                alone.stage->data(to.storage) + to.offset_bytes / 4);
  }
  for (size_t row = 0; row < samples.size(); ++row)
    std::copy_n(&x[samples[row] * kImage], kImage,
                alone.stage->data(Storage::kInput) + row * kImage);
  EXPECT_TRUE(alone.stage->Run(part, Context()).ok());
  const float* y = alone.stage->data(Storage::kOutput);
  return {y, y + samples.size() * kImage};
}

double Dot(const float* a, const float* b) {
  double sum = 0;
  for (int64_t e = 0; e < kImage; ++e) sum += static_cast<double>(a[e]) * static_cast<double>(b[e]);
  return sum;
}

// Moves the bias of a logit so that half of the samples run.
void RunHalf(Block& gated, const std::vector<float>& x) {
  const StateTensor& bias = gated.stage->program.state.tensors[kGateTensors - 1];
  float* logit = gated.stage->data(Storage::kParameters) + bias.offset_bytes / 4;
  std::vector<double> differences;
  for (size_t i = 0; i < kBatch; ++i) {
    const std::vector<double> logits =
        LogitsOf(gated.stage->Tensors(Storage::kParameters), &x[i * kImage]);
    differences.push_back(logits[0] - logits[1]);
  }
  std::sort(differences.begin(), differences.end());
  logit[1] += static_cast<float>((differences[2] + differences[3]) / 2);
}

// Beside numeric differences of the loss that straight-through gradients are those of.
void ExpectStraightThrough(const std::string& backend_name, bool explores) {
  SCOPED_TRACE(backend_name + (explores ? " explores" : " does not explore"));
  auto backend = *MakeBackend(backend_name, 1);
  const ModelSpec model = Gated("ff:0,32/32,32@beta:0.25");
  Block gated(model, kBatch, backend.get(), "fp32");
  StepContext context = Context();
  context.price_sign = explores ? 1 : -1;  // both are tried
  while (Explores(GateDraws(context.run_seed, 1, context.sequence)) != explores)
    context.sequence = context.sequence.next();
  std::vector<float> x(kBatch * kImage), dy(kBatch * kImage);
  Fill(x.data(), kBatch * kImage, 1);
  Fill(dy.data(), kBatch * kImage, 2);
  // Channels of different sizes, so that the gate tells samples apart.
  for (size_t e = 0; e < x.size(); ++e)
    x[e] = std::fabs(x[e]) * (e / (kImage / 4) * 7 % 5 == 0 ? 6.0f : 0.5f);
  std::copy(x.begin(), x.end(), gated.stage->data(Storage::kInput));
  std::copy(dy.begin(), dy.end(), gated.stage->data(Storage::kOutputGradient));
  RunHalf(gated, x);
  const auto tensors = [&] { return gated.stage->Tensors(Storage::kParameters); };

  Tally tally;
  context.work = &tally;
  gated.Train(context);
  std::vector<size_t> running, skipping;
  for (size_t i = 0; i < kBatch; ++i) {
    const std::vector<double> logits = LogitsOf(tensors(), &x[i * kImage]);
    (logits[1] > logits[0] ? running : skipping).push_back(i);
  }
  ASSERT_EQ(running.size(), 3u);
  const int64_t of_gates = 3 * kBatch * (4 * 32 + 32 * 16 + 16 * 2);
  EXPECT_EQ(tally.done, of_gates + 3 * kSampleMacs + (explores ? 3 * kSampleMacs / 3 : 0))
      << "exploring is a forward, and counted";

  const double price = 0.25 * context.price_sign;
  std::vector<std::array<double, 2>> worth(kBatch, {0, price});
  std::vector<float> g(dy);
  for (size_t e = 0; e < g.size(); ++e) g[e] = gated.y[e] > 0 ? dy[e] : 0;
  Block before(model, kBatch, backend.get(), "fp32");  // statistics as they were
  std::copy_n(gated.stage->data(Storage::kParameters), gated.stage->bytes(Storage::kParameters) / 4,
              before.stage->data(Storage::kParameters));
  const std::vector<float> ran = BlockAlone(before, x, running, Part::kForward, backend.get());
  const std::vector<float> explored =
      BlockAlone(gated, x, skipping, Part::kForwardEval, backend.get());
  for (size_t row = 0; row < 3; ++row) {
    worth[running[row]][1] += Dot(&g[running[row] * kImage], &ran[row * kImage]);
    if (explores)
      worth[skipping[row]][1] += 8 * Dot(&g[skipping[row] * kImage], &explored[row * kImage]);
  }
  const Tensors gradients = gated.stage->Tensors(Storage::kGradients);
  double largest = 0;
  for (size_t t = 0; t < kGateTensors; ++t) {
    for (size_t e = 0; e < gradients[t].size(); e += 1 + gradients[t].size() / 40) {
      Tensors moved = tensors();
      const float at = moved[t][e], step = 0x1p-9f;
      moved[t][e] = at + step;
      double slope = SurrogateLoss(moved, x, worth);
      moved[t][e] = at - step;
      slope = (slope - SurrogateLoss(moved, x, worth)) / (2.0 * static_cast<double>(step));
      EXPECT_NEAR(static_cast<double>(gradients[t][e]), slope, 2e-3 + 5e-3 * std::fabs(slope))
          << "tensor " << t << ", " << e;
      largest = std::max(largest, std::fabs(slope));
    }
  }
  EXPECT_GT(largest, 0.05) << "the gate has a gradient";
}

TEST(GatesThatLearn, GradientsAreThoseOfProbabilitiesStraightThroughTheChoice) {
  for (const char* backend : kGridBackends) {
    ExpectStraightThrough(backend, /*explores=*/false);
    ExpectStraightThrough(backend, /*explores=*/true);
  }
}

// Evaluation chooses as training does, sample by sample.
TEST(GatesThatLearn, EvaluationChooses) {
  auto backend = *MakeBackend("cpu", 1);
  const ModelSpec model = Gated("ff:0,32/32,32");
  Block whole(model, kBatch, backend.get(), "fp32"), alone(model, 1, backend.get(), "fp32");
  Fill(whole.stage->data(Storage::kInput), kBatch * kImage, 1);
  ASSERT_TRUE(whole.stage->Run(Part::kForwardEval, Context()).ok());
  for (int64_t i = 0; i < kBatch; ++i) {
    std::copy_n(whole.stage->data(Storage::kInput) + i * kImage, kImage,
                alone.stage->data(Storage::kInput));
    ASSERT_TRUE(alone.stage->Run(Part::kForwardEval, Context()).ok());
    for (int64_t e = 0; e < kImage; ++e)
      ASSERT_EQ(whole.stage->data(Storage::kOutput)[i * kImage + e],
                alone.stage->data(Storage::kOutput)[e]);
  }
}

TEST(GatesThatLearn, EachOptionIsExploredAsOftenAsItsWeightSays) {
  OpSpec gate{.kind = OpKind::kGate, .inputs = {0}};
  gate.options = {0, 8, 3, 6, 4, 8, 8, 8};
  constexpr int kMicroBatches = 4000;
  std::map<int, double> sums;
  for (int s = 0; s < kMicroBatches; ++s) {
    const CounterRandom draws = GateDraws(7, 2, Sequence(s));
    if (!Explores(draws)) continue;
    const Explored other = ExploredOption(gate, draws, s % 5, /*chosen=*/1);
    sums[other.option] += other.weight / kMicroBatches;
  }
  EXPECT_EQ(sums.size(), 2u) << "neither the chosen one nor to skip";
  EXPECT_NEAR(sums[2], 1, 0.15);
  EXPECT_NEAR(sums[3], 1, 0.15);
  EXPECT_EQ(ExploredOption({.options = {0, 8, 8, 8}}, GateDraws(7, 2, Sequence(0)), 0, 1).option,
            kNothingExplored);
  EXPECT_DOUBLE_EQ(CostOfOption(gate, 0), 0);
  EXPECT_DOUBLE_EQ(CostOfOption(gate, 1), (9 + 2 * 18) / 1024.0 / 3);
}

void ExpectCutsChangeNoByteOf(const char* recipe, const std::string& gates) {
  Training training = {.model = Gated(gates), .recipe = recipe, .count = 6};
  training.levels = {{}};
  for (const char* backend : kGridBackends) {
    training.backend = backend;
    training.cuts = {};
    const Trained whole = TrainOnGrids(training);
    training.cuts = {2};
    EXPECT_TRUE(TrainOnGrids(training).parameters == whole.parameters) << backend;
    training.cuts = {1, 2};
    EXPECT_TRUE(TrainOnGrids(training).parameters == whole.parameters) << backend;
  }
}

TEST(Gates, CutsChangeNoByte) {
  for (const char* rule : {"@hold:0.4", "@beta:0.01"}) {
    ExpectCutsChangeNoByteOf("fp32", absl::StrCat("ff:0,32/32,32", rule));
    ExpectCutsChangeNoByteOf("sbm:8,8,8", absl::StrCat("ff:0,3,8/6,6,8", rule));
  }
}

// Blocks with a layer without a gate between them, which hands the first one's state on.
ModelSpec WithLstm(const std::string& options) {
  ModelSpec model = Blocks();
  model.layers.insert(model.layers.begin() + 2, {"plain", {Conv(0), Op(OpKind::kRelu, {1})}});
  return *AddGates(std::move(model), absl::StrCat("lstm:", options, "@beta:0.01"));
}

TEST(GatesWithAnLstm, CutsChangeNoByte) {
  const std::pair<const char*, const char*> cases[] = {{"fp32", "0,32/32,32"},
                                                       {"sbm:8,8,8", "0,3,8/6,6,8"}};
  for (const auto& [recipe, options] : cases) {
    Training training = {.model = WithLstm(options), .recipe = recipe, .count = 6};
    training.levels = {{}};
    for (const char* backend : kGridBackends) {
      training.backend = backend;
      training.cuts = {};
      const Trained whole = TrainOnGrids(training);
      for (const std::vector<int>& cuts : {std::vector<int>{2}, {3}, {2, 3}, {1, 2, 3, 4}}) {
        training.cuts = cuts;
        EXPECT_TRUE(TrainOnGrids(training).parameters == whole.parameters)
            << backend << " " << recipe << " " << cuts.size();
      }
    }
  }
}

// The sums of the second gate's LSTM read 16 features, then 16 of the first gate's.
TEST(GatesWithAnLstm, TheStateChangesWhatTheNextGateLearns) {
  const ModelSpec model = WithLstm("0,32/32,32");
  const auto weights = [&model](float factor) {
    auto backend = *MakeBackend("cpu", 1);
    auto pipeline = *TestPipeline::Make(model, {2, 3}, kBatch, backend.get(), 3, Checks::kOn);
    const std::vector<float> x(kBatch * kImage, 0.5f);
    const std::vector<int32_t> labels(kBatch, 1);
    float* parameters = pipeline.stages[0]->data(Storage::kParameters);
    for (const StateTensor& tensor : pipeline.stages[0]->program.state.tensors) {
      if (tensor.layer != 1 || tensor.spec.name != "gate.sums.weight") continue;
      for (int64_t e = 0; e < tensor.spec.shape.elements(); ++e)
        parameters[tensor.offset_bytes / 4 + e] *= factor;
    }
    EXPECT_TRUE(pipeline.ForwardBackward(x.data(), labels.data(), Context()).ok());
    const TestStage& last = *pipeline.stages[2];
    const float* state =
        reinterpret_cast<const float*>(pipeline.stages[2]->bindings[Storage::kInput] +
                                       SidePlaces(NumberFormat{.beside = kStateSideValues},
                                                  last.program.input, Direction::kForward)[0]
                                           .memory_offset);
    return std::vector<float>(state, state + kBatch * kLstmState);
  };
  const std::vector<float> usual = weights(1), other = weights(2);
  EXPECT_NE(usual, other) << "it crosses two cuts";
  for (const float value : usual) EXPECT_LT(std::fabs(value), 1.0f);
}

TEST(GatesWithAnLstm, AStateWithoutOneInFrontIsRefused) {
  ModelSpec model = WithLstm("0,32/32,32");
  model.layers.erase(model.layers.begin() + 1);
  EXPECT_THAT(std::string(InferShapes(model, 2).status().message()),
              testing::HasSubstr("an operator carried_state has no lstm_cell in front of it"));
}

}  // namespace
}  // namespace runnel::gates_test
