// Workers come and go while a run trains: no step is trained twice or not at all.

#include "tests/central/run/machines/training_cluster.h"

namespace runnel::coordinator_members_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const Plan kThree = PlanOf({0, 1, 2}, {1, 3, 5});
const Plan kTwo = PlanOf({0, 1}, {2, 5});

// `next` from this step on.
std::function<BarrierDecision(const BarrierReport&)> From(int64_t step, const Plan& next) {
  return [step, next](const BarrierReport& report) -> BarrierDecision {
    if (report.step < step || report.plan.stages == next.stages) return KeepPlan{};
    for (const int device : next.devices())
      EXPECT_FALSE(report.devices[static_cast<size_t>(device)].is_lost);
    return ChangePlan{next, "because"};
  };
}

TEST(CoordinatorMembers, AWorkerThatWasLostTakesItsSeatAgain) {
  TrainingCluster cluster(kThree);
  cluster.planner().at_barrier = From(80, kThree);
  cluster.When(SecondGrant, [&] { cluster.Kill(2); });
  bool is_back = false;
  cluster.When(
      [&](const SendControl& send) {
        return cluster.generations().size() == 2 && SecondGrant(send);
      },
      [&] {
        cluster->Joined(ConnectionId(8), SampleHello("w2"), false);
        is_back = true;
      });
  cluster.Settle();
  ASSERT_TRUE(is_back);
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster->devices().size(), 3u);
  EXPECT_EQ(cluster->stages().size(), 3u);
  EXPECT_EQ(cluster->devices()[2].connection, ConnectionId(8));
  EXPECT_THAT(cluster.lines(), HasSubstr("worker w2 takes part again"));
}

TEST(CoordinatorMembers, ANewWorkerBecomesAStage) {
  TrainingCluster cluster(kThree);
  const Plan four = PlanOf({0, 1, 2, 3}, {1, 2, 3, 5});
  cluster.planner().at_barrier = From(80, four);
  cluster.When(SecondGrant, [&] { cluster->Joined(ConnectionId(9), SampleHello("late"), false); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  ASSERT_EQ(cluster->stages().size(), 4u);
  EXPECT_EQ(cluster->stages()[3].worker, "late");
  EXPECT_THAT(cluster.phases(), IsEmpty()) << "nothing was lost";
}

// Its answer never comes: nobody waits for it.
TEST(CoordinatorMembers, ANewWorkerIsMeasuredBesideTheTraining) {
  for (const bool is_lost : {false, true}) {
    TrainingCluster cluster(kThree);
    bool is_asked = false;
    cluster.planner().at_barrier = [&](const BarrierReport& report) -> BarrierDecision {
      if (report.devices.size() < 4 || std::exchange(is_asked, true)) return KeepPlan{};
      return MeasureDevices{{3}, {}, /*beside=*/true};
    };
    bool is_measured = false;
    cluster.When(SecondGrant,
                 [&] { cluster->Joined(ConnectionId(9), SampleHello("late"), false); });
    cluster.When(
        [](const SendControl& send) {
          return std::holds_alternative<ProfileRequest>(send.message);
        },
        [&] {
          is_measured = true;
          if (is_lost) cluster->Gone(ConnectionId(9), absl::UnavailableError("killed"));
        });
    cluster.Settle();
    EXPECT_TRUE(is_measured);
    cluster.ExpectAllTrainedOnce();
    EXPECT_THAT(cluster.lines(), HasSubstr("worker late is new, it is measured"));
    EXPECT_EQ(cluster->stages().size(), 3u);
  }
}

// Before the plan there is nobody to show it to.
TEST(CoordinatorMembers, OneThatComesTooEarlyTriesAgain) {
  CoordinatorOptions options;
  options.stage.model = MakeModel("lenet").value();
  options.stage.training.dataset_samples = 1000;
  options.stage.training.batch_size = 10;
  options.roster = {.local_workers = 1, .recipe = "fp32", .codecs = {CodecId::Identity()}};
  ScriptedPlanner planner;
  options.planner = &planner;
  options.needs_profile = true;
  Coordinator coordinator = Coordinator::Create(std::move(options)).value();
  coordinator.Joined(ConnectionId(0), SampleHello("own"), true);
  coordinator.TakeEffects();
  coordinator.Joined(ConnectionId(1), SampleHello("early"), false);
  const auto refused = MessagesOf<Refused>(coordinator.TakeEffects());
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_FALSE(refused[0].second.is_final);
}

TEST(CoordinatorMembers, WhoLeavesHandsItsLayersOverFirst) {
  for (const int64_t leaving : {1, 2}) {
    TrainingCluster cluster(kThree);
    cluster.When(SecondGrant, [&] { cluster->Received(ConnectionId(leaving), Leaving{}); });
    cluster.Settle();
    cluster.ExpectAllTrainedOnce();
    EXPECT_THAT(cluster.phases(), IsEmpty()) << "nothing is trained again";
    EXPECT_THAT(cluster.lines(), HasSubstr("leaves: its layers move to others"));
    EXPECT_EQ(cluster->stages().size(), 2u);
    ASSERT_FALSE(cluster.released().empty());
    EXPECT_EQ(cluster.released().front(), leaving) << "as soon as the others have its layers";
  }
}

TEST(CoordinatorMembers, WhatMakesItLeaveIsSaid) {
  TrainingCluster cluster(kThree);
  cluster.When(SecondGrant,
               [&] { cluster->Received(ConnectionId(2), Leaving{"the battery is at 19 %"}); });
  cluster.Settle();
  EXPECT_THAT(cluster.lines(),
              HasSubstr("worker w2 leaves (the battery is at 19 %): its layers move to others"));
}

TEST(CoordinatorMembers, WhoHasLeftIsNoLoss) {
  TrainingCluster cluster(kThree);
  cluster.When(SecondGrant, [&] { cluster->Received(ConnectionId(2), Leaving{}); });
  cluster.When(
      [](const SendControl& send) {
        const auto* run = std::get_if<RunUntil>(&send.message);
        return run != nullptr && run->limit == Sequence(120);
      },
      [&] { cluster.Kill(2); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.phases(), IsEmpty());
  EXPECT_THAT(cluster.lines(), HasSubstr("worker w2 has left"));
}

TEST(CoordinatorMembers, OneThatIsLostWhileItLeavesIsLost) {
  TrainingCluster cluster(kThree);
  cluster.When(SecondGrant, [&] {
    cluster->Received(ConnectionId(2), Leaving{});
    cluster.Kill(2);
  });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.phases(), Not(IsEmpty()));
}

TEST(CoordinatorMembers, WithoutAStageItGoesAtOnce) {
  TrainingCluster cluster(kTwo);
  cluster.When(SecondGrant, [&] { cluster->Received(ConnectionId(2), Leaving{}); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster.released().front(), 2);
  EXPECT_EQ(cluster.generations().size(), 1u);
}

TEST(CoordinatorMembers, TheOneOnCentralsHostStays) {
  TrainingCluster cluster(kThree);
  cluster.When(SecondGrant, [&] { cluster->Received(ConnectionId(0), Leaving{}); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.lines(), HasSubstr("worker w0 cannot leave"));
  EXPECT_EQ(cluster.generations().size(), 1u);
}

TEST(CoordinatorMembers, IfNoPlanFitsTheOthersItStays) {
  TrainingCluster cluster(kThree);
  cluster.planner().for_survivors = [](const BarrierReport&) -> absl::StatusOr<Plan> {
    return absl::ResourceExhaustedError("no memory");
  };
  cluster.When(SecondGrant, [&] { cluster->Received(ConnectionId(2), Leaving{}); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.lines(), HasSubstr("w2 cannot leave: no memory"));
}

// Its connection broke, or it was started again: it knows sooner than central does.
TEST(CoordinatorMembers, OneThatDialsAgainIsLostAndBack) {
  WorkerHello hello = SampleHello("late");
  hello.device_id = "an id";
  TrainingCluster cluster(kThree);
  const Plan four = PlanOf({0, 1, 2, 3}, {1, 2, 3, 5});
  cluster.planner().at_barrier = From(40, four);
  cluster.When(At<CommitPlan>(1), [&] { cluster->Joined(ConnectionId(9), hello, false); });
  cluster.When(SecondGrant, [&] {
    cluster.Silence(9);
    cluster->Joined(ConnectionId(10), hello, false);
  });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.phases(), Not(IsEmpty())) << "its stage was lost";
  EXPECT_EQ(cluster->devices().size(), 4u);
  EXPECT_EQ(cluster->devices()[3].connection, ConnectionId(10));
  EXPECT_EQ(cluster->stages().size(), 4u) << "it has a stage again";
}

// ---- an operator's orders

TEST(CoordinatorMembers, APausedRunStandsAtTheNextBarrier) {
  TrainingCluster cluster(kThree);
  cluster.When(SecondGrant, [&] { cluster->Pause(true); });
  cluster.Settle();
  EXPECT_FALSE(cluster.ended().ok()) << "it stands";
  EXPECT_EQ(cluster->step(), 80);
  EXPECT_TRUE(cluster->Members().paused);
  // Who leaves meanwhile need not wait for a barrier.
  EXPECT_TRUE(cluster->Drain("w2").ok());
  cluster.Settle();
  EXPECT_EQ(cluster->stages().size(), 2u);
  EXPECT_THAT(cluster.released(), ElementsAre(2));
  EXPECT_EQ(cluster->step(), 80);
  cluster->Pause(false);
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
}

// The second one asks while the first one's layers move.
TEST(CoordinatorMembers, TwoLeaveAPausedRun) {
  for (const bool asks_in_pause : {true, false}) {
    SCOPED_TRACE(asks_in_pause);
    TrainingCluster cluster(kThree);
    cluster.When(SecondGrant, [&] {
      cluster->Pause(true);
      if (!asks_in_pause) cluster->Received(ConnectionId(2), Leaving{});
    });
    cluster.When(
        [&](const SendControl& send) { return cluster->step() == 80 && At<CommitPlan>(1)(send); },
        [&] { cluster->Received(ConnectionId(1), Leaving{}); });
    cluster.Settle();
    if (asks_in_pause) {
      cluster->Received(ConnectionId(2), Leaving{});
      cluster.Settle();
    }
    EXPECT_EQ(cluster->stages().size(), 1u);
    EXPECT_THAT(cluster.released(), ElementsAre(2, 1));
    EXPECT_EQ(cluster->step(), 80);
    EXPECT_TRUE(cluster->Members().paused);
    cluster->Pause(false);
    cluster.Settle();
    cluster.ExpectAllTrainedOnce();
  }
}

TEST(CoordinatorMembers, APausedRunCanBeStopped) {
  TrainingCluster cluster(kThree);
  cluster.When(SecondGrant, [&] { cluster->Pause(true); });
  cluster.Settle();
  cluster->StopAtBarrier();
  cluster.Settle();
  EXPECT_TRUE(cluster.ended().ok()) << cluster.ended();
}

TEST(CoordinatorMembers, APausedRunThatLosesAWorkerStandsOn) {
  TrainingCluster cluster(kThree);
  cluster.When(SecondGrant, [&] { cluster->Pause(true); });
  cluster.Settle();
  cluster.Kill(1);
  cluster.Settle();
  EXPECT_EQ(cluster->stages().size(), 2u);
  EXPECT_FALSE(cluster.ended().ok());
  cluster->Pause(false);
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
}

TEST(CoordinatorMembers, TheListSaysWhatEachDoes) {
  TrainingCluster cluster(kTwo);
  std::vector<std::string> states;
  cluster.When(SecondGrant, [&] {
    cluster->Drain("w1").IgnoreError();
    for (const Member& member : cluster->Members().members)
      states.push_back(member.name + " " + member.state);
    EXPECT_TRUE(absl::IsNotFound(cluster->Drain("nobody")));
    EXPECT_TRUE(absl::IsFailedPrecondition(cluster->Drain("w0")));
  });
  cluster.Settle();
  EXPECT_THAT(states, ElementsAre("w0 trains layers 0 to 2", "w1 leaves", "w2 waits"));
  cluster.ExpectAllTrainedOnce();
}

}  // namespace
}  // namespace runnel::coordinator_members_test
