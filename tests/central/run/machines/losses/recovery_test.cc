#include "central/run/machines/losses/recovery.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::recovery_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Phase = RecoveryReached::Phase;

class RecoveryTest : public ::testing::Test {
 protected:
  std::vector<Phase> Phases() {
    std::vector<Phase> phases;
    for (const RecoveryReached& reached : EffectsOf<RecoveryReached>(effects_))
      phases.push_back(reached.phase);
    return phases;
  }
  absl::Status Lose(int device, int64_t reached = 0) {
    roster_.Leave(ConnectionId(device), effects_);
    return recovery_.Lose({device, "reset", 7, Sequence(reached)}, replicas_, roster_, effects_);
  }
  // Of the barrier at `step`: layers 0 to 3 at w0 and w1, the others at nobody's or at w1's.
  static ReplicatedBarrier ReplicasOf(int64_t step, bool whole) {
    return {{Generation(1), Sequence(step)},
            step,
            {{{0, 3}, {0, 1}}, {{4, 5}, whole ? std::vector<int>{1} : std::vector<int>{}}}};
  }
  MoveOrder Order() {
    PlanDecided decided{recovery_.step(), PlanOf({0, 1}, {2, 5}), {{"w0", ""}, {"w1", ""}}};
    PrepareStage common;
    common.first_sequence = Sequence(recovery_.step());
    return recovery_.Order(std::move(decided), std::move(common), effects_);
  }
  static ModelState StateOf(int layers) {
    ModelState state;
    state.layers.resize(static_cast<size_t>(layers));
    return state;
  }

  Roster roster_ = FullRoster(3);
  ActivePlan active_ = ActiveFor(PlanOf({0, 1, 2}, {1, 3, 5}));
  RunEffects effects_;
  std::optional<ReplicatedBarrier> replicas_;
  Recovery recovery_{{}, 7, ModelState()};
};

TEST_F(RecoveryTest, GoesOnFromWhatIsDrawnUntilAStateIsKept) {
  EXPECT_EQ(recovery_.step(), 7);
  ASSERT_TRUE(Lose(2).ok());
  EXPECT_TRUE(Order().common.draws_state);
  recovery_.Keep(40, StateOf(6), 0);
  EXPECT_EQ(recovery_.step(), 40);
  const MoveOrder order = Order();
  EXPECT_FALSE(order.common.draws_state);
  EXPECT_TRUE(order.common.starts_over);
  EXPECT_EQ(order.state.layers.size(), 6u);
  EXPECT_EQ(order.recovered, (Recovered{40, {"w2"}}));
  EXPECT_EQ(Order().state.layers.size(), 6u) << "a further loss needs the state again";
}

TEST_F(RecoveryTest, GoesOnFromWhatTheWorkersHave) {
  recovery_.Keep(40, StateOf(6), 0);
  replicas_ = ReplicasOf(60, true);
  ASSERT_TRUE(Lose(2).ok());
  EXPECT_EQ(recovery_.step(), 60);
  EXPECT_EQ(recovery_.central_step(), 40);
  const MoveOrder order = Order();
  EXPECT_EQ(order.replica, replicas_->id);
  EXPECT_EQ(order.held.size(), 2u);
  EXPECT_TRUE(order.state.layers.empty()) << "of another barrier";
  EXPECT_FALSE(order.common.draws_state);
  EXPECT_EQ(order.recovered->step, 60);
}

// Layers of two barriers make no model.
TEST_F(RecoveryTest, WhereWorkersHaveNotAllOfItCentralsStateServes) {
  recovery_.Keep(40, StateOf(6), 0);
  replicas_ = ReplicasOf(60, false);
  ASSERT_TRUE(Lose(2).ok());
  EXPECT_EQ(recovery_.step(), 40);
  MoveOrder order = Order();
  EXPECT_FALSE(order.replica.has_value());
  EXPECT_EQ(order.state.layers.size(), 6u);
  // Of the same barrier central fills the gap.
  replicas_ = ReplicasOf(40, false);
  ASSERT_TRUE(Lose(1).ok());
  order = Order();
  EXPECT_EQ(order.replica, replicas_->id);
  EXPECT_EQ(order.state.layers.size(), 6u);
  replicas_ = ReplicasOf(20, true);
  ASSERT_TRUE(Lose(0).ok());
  EXPECT_EQ(recovery_.step(), 40) << "older than central's";
}

TEST_F(RecoveryTest, SaysHowFarItIs) {
  recovery_.Keep(40, StateOf(6), 0);
  ASSERT_TRUE(Lose(2, 55).ok());
  Order();
  recovery_.AddTelemetry({.backwards = 90}, effects_);
  EXPECT_THAT(Phases(), ElementsAre(Phase::kLost, Phase::kPlanned)) << "of the plan before";
  recovery_.Prepared(effects_);
  recovery_.AddTelemetry({.backwards = 40}, effects_);
  effects_.clear();
  recovery_.AddTelemetry({.backwards = 41}, effects_);
  EXPECT_THAT(Phases(), ElementsAre(Phase::kFirstGradient));
  recovery_.AddTelemetry({.backwards = 54}, effects_);
  recovery_.AddTelemetry({.backwards = 55}, effects_);
  recovery_.AddTelemetry({.backwards = 56}, effects_);
  EXPECT_THAT(Phases(), ElementsAre(Phase::kFirstGradient, Phase::kCaughtUp));
}

// What was trained before the first loss is still to be trained again after the second.
TEST_F(RecoveryTest, ALossWhileItReplaysIsARecoveryOfItsOwn) {
  ASSERT_TRUE(Lose(2, 55).ok());
  Order();
  recovery_.Prepared(effects_);
  recovery_.AddTelemetry({.backwards = 8}, effects_);
  effects_.clear();
  ASSERT_TRUE(Lose(1, 20).ok());
  EXPECT_THAT(EffectsOf<RecoveryReached>(effects_)[0].workers, ElementsAre("w1"));
  Order();
  recovery_.Prepared(effects_);
  effects_.clear();
  recovery_.AddTelemetry({.backwards = 54}, effects_);
  recovery_.AddTelemetry({.backwards = 55}, effects_);
  EXPECT_THAT(Phases(), ElementsAre(Phase::kFirstGradient, Phase::kCaughtUp));
}

TEST_F(RecoveryTest, StartsALocalWorkerOnlyIfNoneIsLeft) {
  ASSERT_TRUE(Lose(1).ok());
  EXPECT_TRUE(recovery_.replacing());
  EXPECT_FALSE(recovery_.Return("w1")) << "nobody is waited for";
  ASSERT_TRUE(Lose(0).ok());
  EXPECT_TRUE(recovery_.waiting());
  EXPECT_EQ(EffectsOf<StartLocalWorker>(effects_)[0].name, "w0");
  ASSERT_TRUE(Lose(2).ok());
  EXPECT_EQ(EffectsOf<StartLocalWorker>(effects_).size(), 1u);
  EXPECT_TRUE(recovery_.Return("w0"));
  EXPECT_TRUE(recovery_.replacing());
  EXPECT_EQ(Order().recovered->workers, (std::vector<std::string>{"w1", "w0", "w2"}));
}

// Another start would end the one that is on its way, and be another loss.
TEST_F(RecoveryTest, AWorkerThatIsOnItsWayIsNotStartedAgain) {
  ASSERT_TRUE(Lose(0).ok());
  ASSERT_TRUE(Lose(1).ok());
  effects_.clear();
  ASSERT_TRUE(recovery_.Return("w1"));
  ASSERT_TRUE(recovery_.Await("w0", effects_).ok());
  EXPECT_TRUE(EffectsOf<StartLocalWorker>(effects_).empty());
  EXPECT_TRUE(recovery_.waiting());
  ASSERT_TRUE(recovery_.Return("w0"));
  ASSERT_TRUE(recovery_.Await("w0", effects_).ok());
  EXPECT_EQ(EffectsOf<StartLocalWorker>(effects_).size(), 1u) << "it was there, and is lost again";
}

// Of a run that only evaluates.
TEST(Recovery, ALossEndsARunThatCannotRecover) {
  Roster roster = FullRoster(2);
  Recovery recovery({.is_possible = false}, 0, ModelState());
  RunEffects effects;
  roster.Leave(ConnectionId(1), effects);
  recovery.Keep(40, ModelState(), 0);
  EXPECT_EQ(recovery.step(), 0) << "nobody needs it";
  const absl::Status status =
      recovery.Lose({1, "reset", 40, Sequence(0)}, std::nullopt, roster, effects);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker w1 was lost after step 40 (reset)"));
  EXPECT_THAT(effects, IsEmpty());
  EXPECT_FALSE(recovery.WantsState({}, {}, 0));
}

// A state takes as long as the last one: at most one part in 32 of the time.
TEST_F(RecoveryTest, CollectsStatesForItsShareOfTheTime) {
  const std::vector<DeviceFacts> devices(3, DeviceFacts{.is_local = true});
  EXPECT_TRUE(recovery_.WantsState(active_, devices, 1000));
  recovery_.BeginCollecting(1000);
  recovery_.Keep(40, StateOf(6), 1100);
  EXPECT_FALSE(recovery_.WantsState(active_, devices, 1100 + 32 * 100 - 1));
  EXPECT_TRUE(recovery_.WantsState(active_, devices, 1100 + 32 * 100));
}

// Replication takes its share as well.
TEST_F(RecoveryTest, CollectsLessOftenBesideReplication) {
  const std::vector<DeviceFacts> devices(3, DeviceFacts{.is_local = true});
  Recovery recovery({.has_replicas = true}, 0, ModelState());
  EXPECT_TRUE(recovery.WantsState(active_, devices, 1000));
  recovery.BeginCollecting(1000);
  recovery.Keep(40, StateOf(6), 1100);
  EXPECT_FALSE(recovery.WantsState(active_, devices, 1100 + 128 * 100 - 1));
  EXPECT_TRUE(recovery.WantsState(active_, devices, 1100 + 128 * 100));
}

TEST(Recovery, ASlowPathIsKnownBeforeTheFirstState) {
  const ActivePlan active = [] {
    ActivePlan plan = ActiveFor(PlanOf({0, 1, 2}, {1, 3, 5}));
    plan.stages[2].telemetry.upstream_bytes_per_second = 500;
    return plan;
  }();
  std::vector<DeviceFacts> devices(3);
  devices[0].is_local = true;
  devices[1].path.up.rate = LinkRate::BytesPerSecond(1000);
  // Layers 2 and 3 take 2 s of the path to w1, layers 4 and 5 take 4 s of the link to w2.
  Recovery recovery({.layer_bytes = std::vector<int64_t>(6, 1000)}, 0, ModelState());
  constexpr int64_t kSecond = 1'000'000'000;
  EXPECT_FALSE(recovery.WantsState(active, devices, 0)) << "counted from the first barrier";
  EXPECT_FALSE(recovery.WantsState(active, devices, 32 * 6 * kSecond - 1));
  EXPECT_TRUE(recovery.WantsState(active, devices, 32 * 6 * kSecond));
}

}  // namespace
}  // namespace runnel::recovery_test
