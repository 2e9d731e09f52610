// The stages' states of a barrier become the model's.

#include "central/run/machines/state_collection.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::state_collection_test {
namespace {

using ::testing::ElementsAre;

constexpr StateUse kCheckpoint = {.checkpoint = true};
constexpr StateUse kFinal = {.final = true};

class StateCollectionTest : public ::testing::Test {
 protected:
  StateCollectionTest()
      : model_(MakeModel("lenet").value()),
        state_(InitialState(model_, 1).value()),
        active_(ActiveFor(PlanOf({0, 1}, {2, 5}))),
        collection_(model_, {}, Batching::Create(1000, 10, 1, 1).value()) {}

  // Whether the answer of this stage to the request of `step` was the last one.
  bool Completes(int stage, int64_t step, int generation = 1) {
    const StagePlan& layers = active_.plan.stages[static_cast<size_t>(stage)];
    auto whole = collection_.AddPart(stage, {Generation(generation), Sequence(step),
                                             Slice(state_, layers.first_layer, layers.last_layer)});
    EXPECT_TRUE(whole.ok()) << whole.status();
    if (!whole.ok() || !whole->has_value()) return false;
    EXPECT_EQ((*whole)->state, state_);
    EXPECT_EQ((*whole)->step, step);
    use_ = (*whole)->use;
    return true;
  }

  ModelSpec model_;
  ModelState state_;
  ActivePlan active_;
  StateCollection collection_;
  RunEffects effects_;
  StateUse use_;
};

TEST_F(StateCollectionTest, IsWholeWhenEveryStageHasAnsweredOnce) {
  collection_.Request(40, kCheckpoint, active_, effects_);
  EXPECT_THAT(ReceiversOf<SnapshotRequest>(effects_), ElementsAre(0, 1));
  EXPECT_TRUE(collection_.Awaits(1));
  EXPECT_FALSE(Completes(1, 40));
  EXPECT_FALSE(Completes(1, 40)) << "said twice";
  EXPECT_FALSE(collection_.Awaits(1));
  EXPECT_FALSE(Completes(0, 80)) << "nobody asked";
  EXPECT_FALSE(Completes(0, 40, 2)) << "another plan";
  EXPECT_TRUE(Completes(0, 40));
  EXPECT_EQ(use_, kCheckpoint);
  EXPECT_FALSE(Completes(0, 40));
}

TEST_F(StateCollectionTest, TheNextBarrierMayComeBeforeTheStateOfTheLast) {
  collection_.Request(40, kCheckpoint, active_, effects_);
  collection_.Request(80, kFinal, active_, effects_);
  EXPECT_FALSE(Completes(0, 40));
  EXPECT_FALSE(Completes(0, 80));
  EXPECT_TRUE(collection_.Awaits(1));
  EXPECT_TRUE(Completes(1, 40));
  EXPECT_EQ(use_, kCheckpoint);
  EXPECT_TRUE(Completes(1, 80));
  EXPECT_EQ(use_, kFinal);
}

TEST_F(StateCollectionTest, AnEvaluationNeedsNoMomentum) {
  collection_.Request(40, {.evaluation = true}, active_, effects_);
  collection_.Request(80, {.checkpoint = true, .evaluation = true}, active_, effects_);
  std::vector<bool> weights_only;
  for (const SendControl& send : EffectsOf<SendControl>(effects_))
    weights_only.push_back(std::get<SnapshotRequest>(send.message).weights_only);
  EXPECT_THAT(weights_only, ElementsAre(true, true, false, false));
}

TEST_F(StateCollectionTest, PartsThatAreNotTheModelAreAnError) {
  collection_.Request(40, kCheckpoint, active_, effects_);
  EXPECT_FALSE(Completes(0, 40));
  const auto whole = collection_.AddPart(1, {Generation(1), Sequence(40), Slice(state_, 3, 4)});
  EXPECT_EQ(whole.status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace runnel::state_collection_test
