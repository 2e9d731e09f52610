// Gates: samples that skip are not computed, and those that run give what a micro-batch of these
// alone gives.

#include <cmath>
#include <map>

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

TEST(Gates, CutsChangeNoByte) {
  for (const char* recipe : {"fp32", "sbm:8,8,8"}) {
    const bool has_grids = std::string(recipe) != "fp32";
    Training training = {
        .model = Gated(has_grids ? "ff:0,3,8/6,6,8@hold:0.4" : "ff:0,32/32,32@hold:0.4"),
        .recipe = recipe};
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
}

}  // namespace
}  // namespace runnel::gates_test
