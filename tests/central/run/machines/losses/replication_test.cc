#include "central/run/machines/losses/replication.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::replication_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMs = 1'000'000;

class ReplicationTest : public ::testing::Test {
 protected:
  // One sample a step: sequences are steps.
  ReplicaId Begin(int64_t step, int64_t now_ns = 0) {
    effects_.clear();
    replication_.Begin(step, Sequence(step), active_, NeighboursHold(3), now_ns, effects_);
    return MessagesOf<Replicate>(effects_).at(0).second.id;
  }
  void Answer(const ReplicaId& id, const std::vector<size_t>& stages, int64_t took_ns = kMs) {
    for (const size_t stage : stages)
      replication_.AddReplicated(stage, {id, kMs / 2, took_ns, 100, {}}, roster_, effects_);
  }
  bool Wants(int64_t step, int64_t now_ns = 0) {
    return replication_.Wants(step, 0, active_, now_ns);
  }

  bool HasRoom(const std::vector<DeviceFacts>& devices) {
    return replication_.HoldersIn(active_, devices, roster_, effects_).has_value();
  }

  Roster roster_ = FullRoster(4);
  ActivePlan active_ = ActiveFor(PlanOf({0, 1, 2}, {1, 3, 5}));
  RunEffects effects_;
  Replication replication_{{.every = 1, .barrier_steps = 40}};
};

TEST_F(ReplicationTest, IsCommittedWhenAllHaveAnswered) {
  const ReplicaId id = Begin(40);
  EXPECT_THAT(ReceiversOf<Replicate>(effects_), ElementsAre(0, 1, 2));
  EXPECT_EQ(id, (ReplicaId{Generation(1), Sequence(40)}));
  effects_.clear();
  Answer(id, {0, 2, 2});
  Answer({Generation(1), Sequence(80)}, {1});
  Answer({Generation(2), Sequence(40)}, {1});
  EXPECT_FALSE(replication_.committed().has_value());
  EXPECT_THAT(effects_, IsEmpty());
  Answer(id, {1});
  ASSERT_TRUE(replication_.committed().has_value());
  EXPECT_THAT(ReceiversOf<CommitReplicas>(effects_), ElementsAre(0, 1, 2, 3)) << "a spare too";
  EXPECT_EQ(replication_.committed()->step, 40);
  EXPECT_TRUE(replication_.committed()->is_whole());
  const std::vector<LayersHeld>& layers = replication_.committed()->layers;
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_THAT(layers[0].devices, ElementsAre(0, 1));
  EXPECT_THAT(layers[1].devices, ElementsAre(1, 2));
  EXPECT_THAT(layers[2].devices, ElementsAre(2, 1)) << "the last one has no next";
  EXPECT_EQ(layers[2].layers, (LayerRange{4, 5}));
  EXPECT_EQ(replication_.summary().count, 1);
  EXPECT_EQ(replication_.summary().bytes, 300);
  EXPECT_DOUBLE_EQ(replication_.summary().stall_s, 0.0005) << "they stand at the same time";
}

TEST_F(ReplicationTest, NeighboursTakeAStateWithThem) {
  Answer(Begin(40), {0, 1, 2});
  replication_.Lose(3);
  replication_.Lose(0);
  EXPECT_TRUE(replication_.committed()->is_whole());
  EXPECT_THAT(replication_.committed()->layers[0].devices, ElementsAre(1));
  replication_.Lose(2);
  EXPECT_TRUE(replication_.committed()->is_whole());
  replication_.Lose(1);
  EXPECT_FALSE(replication_.committed()->is_whole());
}

// A stage that is no neighbour has to say itself that it has the copy.
TEST_F(ReplicationTest, AHolderFurtherAwayAnswersItself) {
  const CopyHolders holders = {{2}, {0, 2}, {0}};
  replication_.Begin(40, Sequence(40), active_, holders, 0, effects_);
  const ReplicaId id = MessagesOf<Replicate>(effects_).at(0).second.id;
  EXPECT_EQ(MessagesOf<Replicate>(effects_).at(1).second.holders, holders[1]);
  Answer(id, {0, 1, 2});
  const auto keep = [&](size_t stage, int source) {
    replication_.AddReplicated(stage, {.id = id, .kept_of = source}, roster_, effects_);
  };
  keep(2, 0);
  keep(2, 0);
  keep(1, 2);
  EXPECT_FALSE(replication_.committed().has_value());
  keep(0, 2);
  ASSERT_TRUE(replication_.committed().has_value());
  for (const LayersHeld& held : replication_.committed()->layers)
    EXPECT_EQ(held.devices.size(), 3u) << "those between keep it too";
  replication_.Lose(1);
  replication_.Lose(2);
  EXPECT_TRUE(replication_.committed()->is_whole()) << "any two at once";
  EXPECT_DOUBLE_EQ(replication_.summary().took_s, 0.002) << "over one other stage";
}

// One under way: the next is left out, not queued.
TEST_F(ReplicationTest, AtMostOneIsUnderWay) {
  EXPECT_TRUE(Wants(40));
  const ReplicaId id = Begin(40);
  EXPECT_FALSE(Wants(80));
  EXPECT_FALSE(Wants(120));
  EXPECT_EQ(replication_.summary().skipped, 2);
  Answer(id, {0, 1, 2});
  EXPECT_TRUE(Wants(160));
  replication_.GiveUp();
  Begin(160);
  replication_.GiveUp();
  EXPECT_EQ(replication_.committed()->step, 40);
  EXPECT_TRUE(Wants(200));
}

TEST_F(ReplicationTest, OnlyWhatNobodyHasAndSomebodyCanKeep) {
  EXPECT_FALSE(replication_.Wants(40, 40, active_, 0)) << "central has it";
  Answer(Begin(40), {0, 1, 2});
  EXPECT_FALSE(Wants(40)) << "the workers have it";
  replication_.Lose(1);
  EXPECT_TRUE(Wants(40)) << "there is one of each left";
  const ActivePlan alone = ActiveFor(PlanOf({0}, {5}));
  EXPECT_FALSE(replication_.Wants(80, 0, alone, 0));
  Replication never({.every = -1});
  EXPECT_FALSE(never.Wants(40, 0, active_, 0));
}

TEST_F(ReplicationTest, EveryFewBarriers) {
  Replication third({.every = 3, .barrier_steps = 40});
  EXPECT_FALSE(third.Wants(40, 0, active_, 0));
  EXPECT_FALSE(third.Wants(80, 0, active_, 0));
  EXPECT_TRUE(third.Wants(120, 0, active_, 0));
  third.Begin(120, Sequence(120), active_, NeighboursHold(3), 0, effects_);
  third.GiveUp();
  EXPECT_FALSE(third.Wants(200, 0, active_, 0));
  EXPECT_TRUE(third.Wants(240, 0, active_, 0));
}

TEST_F(ReplicationTest, ByWhatTheLastOneTook) {
  replication_ = Replication({.every = 0, .barrier_steps = 40});
  EXPECT_TRUE(Wants(40, 1000 * kMs));
  Answer(Begin(40, 1000 * kMs), {0, 1, 2}, 10 * kMs);
  EXPECT_FALSE(Wants(80, 1639 * kMs));
  EXPECT_TRUE(Wants(120, 1640 * kMs));
}

// Twice its own and its neighbours' copies, beside what the stage takes.
TEST_F(ReplicationTest, AWorkerWithoutTheMemoryKeepsNoCopies) {
  replication_ = Replication({.layer_bytes = std::vector<int64_t>(6, 100)});
  for (StageStatus& stage : active_.stages) stage.telemetry.memory_bytes = 1000;
  std::vector<DeviceFacts> devices(4);
  EXPECT_TRUE(HasRoom(devices)) << "what they have is not known";
  const std::pair<size_t, int64_t> needs[] = {{0, 2 * 200}, {1, 2 * 600}, {2, 2 * 400}};
  for (const auto& [device, copies] : needs) {
    devices[device].memory_bytes = 1000 + copies;
    EXPECT_TRUE(HasRoom(devices)) << device;
    EXPECT_THAT(EffectsOf<LogLine>(effects_), IsEmpty());
    --devices[device].memory_bytes;
    EXPECT_FALSE(HasRoom(devices)) << device;
    EXPECT_FALSE(HasRoom(devices)) << device;
    EXPECT_EQ(EffectsOf<LogLine>(effects_).size(), 1u) << "said once a plan";
    devices[device].memory_bytes = 0;
    effects_.clear();
    active_.plan.generation = active_.plan.generation.next();
  }
}

TEST_F(ReplicationTest, WhatIsLaterThanTheStepThatTheRunIsAtIsVoid) {
  Answer(Begin(40), {0, 1, 2});
  replication_.GoBackTo(40);
  EXPECT_TRUE(replication_.committed().has_value());
  const ReplicaId under_way = Begin(80);
  replication_.GoBackTo(0);
  EXPECT_FALSE(replication_.committed().has_value());
  Answer(under_way, {0, 1, 2});
  EXPECT_FALSE(replication_.committed().has_value());
}

}  // namespace
}  // namespace runnel::replication_test
