// Gates with a target of cost on one stage and on two: the cost so far crosses the cut beside the
// activations, the sign of the price comes back beside the gradients.

#include "worker/stage/counts/gate_costs.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/ref/ref_backend.h"
#include "proto/base/training/batching.h"
#include "tests/worker/stage/gated_stage.h"
#include "worker/measure/random_tensors.h"
#include "worker/stage/stage_executor.h"

namespace runnel::gate_costs_test {
namespace {

constexpr int64_t kSamples = kGatedSamples;
constexpr int kCut = 3;  // first layer of the second stage; gates lie on both sides

// Layers of four blocks with a stem and a head.
class Stage : public LoneStage {
 public:
  Stage(int first, int last, const std::string& target, const std::string& kind = "ff")
      : LoneStage(GatedBlocks(4, 6, kind + ":3,4,8/6,6,8@beta:0.5"), first, last,
                  {.cost_target = target, .changes = {ChangeOfCostTarget(4, 1)}}) {}
  std::vector<std::string> Weights() {
    const ModelState state = *(*this)->ExportState();
    std::vector<std::string> weights;
    for (const LayerState& layer : state.layers)
      for (const TensorData& tensor : layer.tensors) weights.push_back(tensor.bytes);
    return weights;
  }
  // The last value beside a boundary tensor.
  template <typename T>
  T Beside(const Payload& tensor, Direction direction, const Shape& shape) {
    T value;
    const SidePlace place = SidePlaces((*this)->numbers(), shape, direction).back();
    std::memcpy(&value, tensor.bytes().data() + place.memory_offset, sizeof(value));
    return value;
  }
};

struct Seen {
  std::vector<float> costs;  // at the cut
  std::vector<int> signs;
};

// Eight steps on both; the weights are the same.
Seen TrainBoth(const std::string& target, const std::string& kind = "ff") {
  Stage whole(0, 5, target, kind), front(0, kCut - 1, target, kind), back(kCut, 5, target, kind);
  const Batching batching = *MakeBatching(GatedSettings(target));
  Seen seen;
  for (int64_t s = 0; s < 8; ++s) {
    const MicroBatch place = batching.Locate(Sequence(s));
    const auto input = [&](BufferPool& pool) {
      return RandomTensor(pool, kSamples * 4 * 6 * 6, static_cast<uint64_t>(s));
    };
    const auto labels = [&](BufferPool& pool) {
      return RandomLabels(pool, kSamples, 3, static_cast<uint64_t>(s));
    };
    EXPECT_TRUE(whole->Forward(place, input(whole.pool()), labels(whole.pool())).ok());
    EXPECT_TRUE(whole->InputGradient(place, Payload()).ok());
    EXPECT_TRUE(whole->WeightGradient(place, true).ok());

    auto down = front->Forward(place, input(front.pool()), Payload());
    EXPECT_TRUE(down.ok()) << down.status();
    const Shape shape = front->output_shape(kSamples);
    if (HasCostTarget(GatedSettings(target)))
      seen.costs.push_back(front.Beside<float>(down->tensor, Direction::kForward, shape));
    EXPECT_TRUE(back->Forward(place, std::move(down->tensor), labels(back.pool())).ok());
    auto up = back->InputGradient(place, Payload());
    EXPECT_TRUE(up.ok()) << up.status();
    if (HasCostTarget(GatedSettings(target)))
      seen.signs.push_back(back.Beside<int32_t>(up->tensor, Direction::kBackward, shape));
    EXPECT_TRUE(back->WeightGradient(place, true).ok());
    EXPECT_TRUE(front->InputGradient(place, std::move(up->tensor)).ok());
    EXPECT_TRUE(front->WeightGradient(place, true).ok());
  }
  std::vector<std::string> cut = front.Weights();
  for (std::string& tensor : back.Weights()) cut.push_back(std::move(tensor));
  EXPECT_EQ(cut, whole.Weights()) << target;
  const auto samples = [](BufferPool& pool) {
    return RandomTensor(pool, kSamples * 4 * 6 * 6, 50);
  };
  const auto classes = [](BufferPool& pool) { return RandomLabels(pool, kSamples, 3, 50); };
  const auto alone = whole->Evaluate(kSamples, samples(whole.pool()), classes(whole.pool()));
  auto between = front->Evaluate(kSamples, samples(front.pool()), Payload());
  EXPECT_TRUE(alone.ok() && between.ok());
  const auto behind = back->Evaluate(kSamples, std::move(between->tensor), classes(back.pool()));
  EXPECT_TRUE(behind.ok()) << behind.status();
  EXPECT_EQ(alone->loss_sum, behind->loss_sum) << "evaluations hand on what training does";
  Telemetry all, first, second;
  whole->FillRange(all);
  front->FillRange(first);
  back->FillRange(second);
  first.gates.insert(first.gates.end(), second.gates.begin(), second.gates.end());
  EXPECT_EQ(first.gates, all.gates);
  EXPECT_EQ(all.gates.size(), 4u);
  for (const GateChoices& gate : all.gates)
    EXPECT_EQ(gate.samples[0] + gate.samples[1] + gate.samples[2], 8 * kSamples) << gate.layer;
  return seen;
}

TEST(GateCosts, OneStageAndTwoTrainAlike) {
  TrainBoth("off");
  const Seen seen = TrainBoth("2,3");
  for (const float cost : seen.costs) {
    EXPECT_GE(cost, 0.7323F) << "two of four blocks, of 1.4648 % at least";
    EXPECT_LE(cost, 3.1251F) << "and 6.25 % at most";
  }
}

// The LSTM's state and its gradient cross the cut behind cost and sign, of another layout without.
TEST(GateCosts, WithAnLstmOneStageAndTwoTrainAlike) {
  TrainBoth("off", "lstm");
  const Seen seen = TrainBoth("2,3", "lstm");
  for (const float cost : seen.costs) EXPECT_GE(cost, 0.7323F);
  for (const int sign : seen.signs) EXPECT_LE(std::abs(sign), 1);
  Stage front(0, kCut - 1, "2,3", "lstm");
  const Shape shape = front->output_shape(kSamples);
  EXPECT_EQ(SidePayloadBytes(front->numbers(), shape, Direction::kForward),
            4 + 4 * kLstmState * kSamples);
  EXPECT_EQ(SidePayloadBytes(front->numbers(), shape, Direction::kBackward),
            4 + 4 * kLstmState * kSamples);
}

// Nobody behind the last gate reads a state: what stands there is zeros, in training and evaluation.
TEST(GateCosts, AStateThatNobodyReadsIsZero) {
  Stage front(0, 4, "off", "lstm");
  const MicroBatch place = MakeBatching(GatedSettings("off"))->Locate(Sequence(0));
  const Shape shape = front->output_shape(kSamples);
  const auto input = [&] { return RandomTensor(front.pool(), kSamples * 4 * 6 * 6, 1); };
  for (const bool trains : {true, false}) {
    const auto result = trains ? front->Forward(place, input(), Payload())
                               : front->Evaluate(kSamples, input(), Payload());
    ASSERT_TRUE(result.ok()) << result.status();
    const SidePlace state = SidePlaces(front->numbers(), shape, Direction::kForward).at(0);
    const absl::Span<const std::byte> bytes =
        result->tensor.bytes().subspan(state.memory_offset, state.bytes);
    EXPECT_EQ(bytes.size(), 4 * kLstmState * kSamples);
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(),
                            [](std::byte byte) { return byte == std::byte{0}; }));
  }
}

// Without gates, too: what a stage sends holds nothing of who had the memory before.
TEST(GateCosts, AStateOfAModelWithoutGatesIsZeroWhereNobodyReadsIt) {
  const auto linear = [](int32_t input, int64_t features) {
    return OpSpec{.kind = OpKind::kLinear, .inputs = {input}, .out_channels = features};
  };
  const OpSpec cell = {.kind = OpKind::kLstmCell, .inputs = {1}};
  const OpSpec carried = {.kind = OpKind::kCarriedState, .inputs = {0}};
  const OpSpec add = {.kind = OpKind::kAdd, .inputs = {2, 3}};
  StageExecutorOptions options;
  options.model = {"state",
                   {4},
                   3,
                   {{"first", {linear(0, 4 * kLstmUnits), cell, linear(2, 5)}},
                    {"second", {carried, linear(1, 16), linear(0, 16), add}},
                    {"third", {linear(0, 3)}}}};
  options.last_layer = 1;
  options.training = GatedSettings("off");
  options.recipe = *FindRecipe("fp32");
  const auto backend = *MakeRefBackend(1);
  BufferPool pool;
  const auto front = *StageExecutor::Create(options, backend.get(), &pool);
  ASSERT_TRUE(front->DrawState().ok());
  const Shape shape = front->output_shape(kSamples);
  const SidePlace state = SidePlaces(front->numbers(), shape, Direction::kForward).at(0);
  {
    Payload before = pool.Allocate(static_cast<size_t>(BoundaryBytes(front->numbers(), shape)));
    std::memset(before.mutable_bytes().data(), 0xFF, before.size());
  }
  const MicroBatch place = MakeBatching(options.training)->Locate(Sequence(0));
  const auto sent = front->Forward(place, RandomTensor(pool, kSamples * 4, 1), Payload());
  ASSERT_TRUE(sent.ok()) << sent.status();
  const absl::Span<const std::byte> bytes =
      sent->tensor.bytes().subspan(state.memory_offset, state.bytes);
  EXPECT_TRUE(
      std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; }));
}

// A target that nothing is below, and one that nothing is above; it turns at step 4.
TEST(GateCosts, TheSignIsThatOfTheTargetOfTheStep) {
  const Seen seen = TrainBoth("0.0001,6.25");
  for (size_t s = 0; s < 4; ++s) EXPECT_EQ(seen.signs[s], 1) << s;
  for (size_t s = 4; s < 8; ++s) EXPECT_LE(seen.signs[s], 0) << s;
}

// What a price does: gates that pay for the dear option leave it, those that are paid take it.
TEST(GateCosts, ThePriceLeadsTheGates) {
  const auto share_of_last = [](const std::string& target) {
    Stage whole(0, 5, target);
    const Batching batching = *MakeBatching(GatedSettings(target));
    int64_t last = 0, all = 0;
    for (int64_t s = 0; s < 20; ++s) {
      const MicroBatch place = batching.Locate(Sequence(s));
      EXPECT_TRUE(whole
                      ->Forward(place, RandomTensor(whole.pool(), kSamples * 4 * 6 * 6, 1),
                                RandomLabels(whole.pool(), kSamples, 3, 1))
                      .ok());
      EXPECT_TRUE(whole->InputGradient(place, Payload()).ok());
      EXPECT_TRUE(whole->WeightGradient(place, true).ok());
    }
    Telemetry telemetry;
    whole->FillRange(telemetry);
    for (const GateChoices& gate : telemetry.gates) {
      last += gate.samples[2];
      all += gate.samples[0] + gate.samples[1] + gate.samples[2];
    }
    return static_cast<double>(last) / static_cast<double>(all);
  };
  EXPECT_LT(share_of_last("0.0001,0.0002"), share_of_last("6.249,6.25"));
}

}  // namespace
}  // namespace runnel::gate_costs_test
