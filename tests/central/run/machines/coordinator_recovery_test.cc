// Workers are lost at every point of a run: training goes on from a barrier, each step is trained
// once, and what is still on its way from before counts for nothing.

#include <functional>
#include <map>
#include <set>

#include "central/run/machines/coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/training_cluster.h"

namespace runnel::coordinator_recovery_test {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using Cluster = TrainingCluster;
using Phase = RecoveryReached::Phase;

const Plan kThree = PlanOf({0, 1, 2}, {1, 3, 5});

TEST(CoordinatorRecovery, EachWorkerInTurn) {
  for (const int64_t lost : {1, 2}) {
    Cluster cluster(kThree);
    cluster.When(SecondGrant, [&] { cluster.Kill(lost); });
    cluster.Settle();
    cluster.ExpectAllTrainedOnce();
    EXPECT_EQ(cluster.log(),
              " plan1 b40 lost-w" + std::to_string(lost) + " back40 plan2 b80 b120 end120");
    EXPECT_THAT(cluster.phases(), ElementsAre(Phase::kLost, Phase::kPlanned, Phase::kPrepared,
                                              Phase::kFirstGradient, Phase::kCaughtUp));
    EXPECT_THAT(cluster.lines(),
                HasSubstr("worker w" + std::to_string(lost) + " was lost: killed"));
    EXPECT_THAT(cluster.lines(), HasSubstr("the run goes on from step 40 on w0, w"));
    EXPECT_EQ(cluster->step(), 120);
  }
}

TEST(CoordinatorRecovery, BeforeTheFirstBarrierFromTheInitialState) {
  Cluster cluster(kThree);
  cluster.When(At<RunUntil>(1), [&] { cluster.Kill(2); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster.log(), " plan1 lost-w2 back0 plan2 b40 b80 b120 end120");
}

// Central learns of one after the other; the plan that it makes in between has a dead stage.
TEST(CoordinatorRecovery, TwoAtOnce) {
  Cluster cluster(kThree);
  cluster.When(SecondGrant, [&] {
    cluster.Silence(2);
    cluster.Kill(1);
  });
  cluster.Settle();
  EXPECT_THAT(cluster.log(), EndsWith(" b40 lost-w1")) << "it waits for w2";
  cluster.Kill(2);
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster.log(), " plan1 b40 lost-w1 lost-w2 back40 plan3 b80 b120 end120");
  EXPECT_THAT(cluster.phases(),
              ElementsAre(Phase::kLost, Phase::kPlanned, Phase::kPlanned, Phase::kPrepared,
                          Phase::kFirstGradient, Phase::kCaughtUp))
      << "one recovery of both";
}

// Whatever the run was doing with the worker.
TEST(CoordinatorRecovery, AtEveryMessageOfAMove) {
  const Plan next = PlanOf({0, 1, 2}, {0, 3, 5});
  const std::vector<std::function<Trigger(int64_t)>> moments = {
      At<FetchLayers>,
      [](int64_t id) {
        return [id, seen = 0](const SendControl& send) mutable {
          return At<PrepareStage>(id)(send) && ++seen == 2;
        };
      },
      [](int64_t id) {
        return [id, seen = 0](const SendControl& send) mutable {
          return At<CommitPlan>(id)(send) && ++seen == 2;
        };
      }};
  for (size_t moment = 0; moment < moments.size(); ++moment) {
    for (const int64_t lost : {1, 2}) {
      Cluster cluster(kThree);
      cluster.planner().at_barrier = [&](const BarrierReport& report) -> BarrierDecision {
        if (report.step != 40) return KeepPlan{};
        return ChangePlan{next, "because"};
      };
      cluster.When(moments[moment](lost), [&] { cluster.Kill(lost); });
      cluster.Settle();
      cluster.ExpectAllTrainedOnce();
      EXPECT_THAT(cluster.log(), HasSubstr(" back40 plan3")) << moment;
    }
  }
}

TEST(CoordinatorRecovery, AtEveryMessageOfAnotherRecovery) {
  for (const bool committed : {false, true}) {
    Cluster cluster(kThree);
    cluster.When(SecondGrant, [&] { cluster.Kill(1); });
    int seen = 0;
    cluster.When(
        [&](const SendControl& send) {
          const bool fits = committed ? At<CommitPlan>(2)(send) : At<PrepareStage>(2)(send);
          return fits && ++seen == 2;
        },
        [&] { cluster.Kill(2); });
    cluster.Settle();
    cluster.ExpectAllTrainedOnce();
    EXPECT_EQ(cluster.log(), committed ? " plan1 b40 lost-w1 back40 plan2 lost-w2 back40 plan3 b80 "
                                         "b120 end120"
                                       : " plan1 b40 lost-w1 lost-w2 back40 plan3 b80 b120 end120");
  }
}

TEST(CoordinatorRecovery, InAnEvaluationThroughThePipeline) {
  Cluster cluster(kThree, 1, 25);
  cluster.When(At<EvaluateRequest>(2), [&] { cluster.Kill(2); });
  cluster.Settle();
  EXPECT_TRUE(cluster.ended().ok()) << cluster.ended();
  EXPECT_EQ(cluster.log(), " plan1 b40 b80 lost-w2 back40 plan2 b80 e80 b120 e120 end120");
}

TEST(CoordinatorRecovery, InAMeasurementAtABarrier) {
  Cluster cluster(kThree);
  bool asked = false;
  cluster.planner().at_barrier = [&](const BarrierReport& report) -> BarrierDecision {
    if (report.step != 40 || std::exchange(asked, true)) return KeepPlan{};
    return MeasureDevices{{1, 2}};
  };
  cluster.When(At<ProfileRequest>(2), [&] { cluster.Kill(2); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.log(), HasSubstr(" b40 lost-w2 back40 plan2"));
}

TEST(CoordinatorRecovery, WhileTheLastStateIsCollected) {
  Cluster cluster(kThree);
  cluster.When(
      [](const SendControl& send) {
        const auto* snapshot = std::get_if<SnapshotRequest>(&send.message);
        return snapshot != nullptr && snapshot->sequence == Sequence(120);
      },
      [&] { cluster.Kill(2); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.log(), HasSubstr(" b120 lost-w2 back80 plan2 b120 end120"));
}

// Stage 0 must be on central's host.
TEST(CoordinatorRecovery, TheOnlyLocalWorkerIsStartedAgain) {
  Cluster cluster(kThree);
  cluster.When(SecondGrant, [&] { cluster.Kill(0); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster.log(), " plan1 b40 lost-w0 start-w0 back40 plan2 b80 b120 end120");
  EXPECT_EQ(cluster->plan().stages.size(), 3u);
  EXPECT_EQ(cluster->plan().stages[0].sole_device(), 0);
}

TEST(CoordinatorRecovery, AnotherLocalWorkerTakesStage0) {
  Cluster cluster(kThree, 2);
  cluster.When(SecondGrant, [&] { cluster.Kill(0); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.log(), Not(HasSubstr("start")));
  EXPECT_EQ(cluster->plan().stages[0].sole_device(), 1);
}

TEST(CoordinatorRecovery, AllLocalWorkersAtOnce) {
  Cluster cluster(kThree, 3);
  cluster.When(SecondGrant, [&] {
    cluster.Silence(1);
    cluster.Silence(2);
    cluster.Kill(0);
  });
  cluster.Settle();
  cluster.Kill(1);
  cluster.Settle();
  cluster.Kill(2);
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.log(), HasSubstr("lost-w2 start-w0 back40 plan4"));
}

// What kills each worker as soon as it trains is not cured by starting it again.
TEST(CoordinatorRecovery, AWorkerThatDiesAgainAndAgainEndsTheRun) {
  Cluster cluster(PlanOf({0}, {5}));
  for (int64_t id = 100; id < 150; ++id)
    cluster.When(At<RunUntil>(id), [&cluster, id] { cluster.Kill(id); });
  cluster.When(SecondGrant, [&] { cluster.Kill(0); });
  cluster.Settle();
  EXPECT_EQ(cluster.ended().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(cluster.ended().message()),
              HasSubstr("were started again for 10 minutes"));
}

TEST(CoordinatorRecovery, AWorkerThatEndsBeforeItJoinsIsStartedOnceMore) {
  Cluster cluster(kThree);
  cluster.returns_ = false;
  cluster.When(SecondGrant, [&] { cluster.Kill(0); });
  cluster.Settle();
  EXPECT_TRUE(cluster->joining());
  cluster.returns_ = true;
  cluster->EndedBeforeJoining("w0", absl::UnavailableError("signal 9"));
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_FALSE(cluster->joining());
  EXPECT_THAT(cluster.log(), HasSubstr(" start-w0 start-w0 back40"));
}

// A plan needs three workers.
absl::StatusOr<Plan> PlanOverThree(const BarrierReport& report) {
  std::vector<int> there;
  for (size_t i = 0; i < report.devices.size(); ++i) {
    if (!report.devices[i].is_lost) there.push_back(static_cast<int>(i));
  }
  if (there.size() < 3) return absl::InvalidArgumentError("conv2 needs 3 MB, w2 has 1 MB");
  return PlanOf(there, {1, 3, 5});
}
constexpr char kNoPlan[] =
    "worker w1 was lost after step 40 (killed), and no plan fits the workers that are left: conv2 "
    "needs 3 MB, w2 has 1 MB";

TEST(CoordinatorRecovery, WhereNoPlanFitsTheLostWorkerOrAnotherIsWaitedFor) {
  for (const char* name : {"w1", "w9"}) {
    Cluster cluster(kThree);
    cluster.planner().for_survivors = PlanOverThree;
    cluster.When(SecondGrant, [&] { cluster.Kill(1); });
    cluster.Settle();
    EXPECT_TRUE(cluster->joining());
    EXPECT_THAT(cluster.lines(), HasSubstr(kNoPlan));
    cluster->Joined(ConnectionId(11), SampleHello(name), false);
    cluster.Settle();
    EXPECT_FALSE(cluster->joining());
    cluster.ExpectAllTrainedOnce();
    EXPECT_EQ(cluster.log(), " plan1 b40 lost-w1 back40 plan2 b80 b120 end120");
    EXPECT_EQ(cluster->plan().stages.size(), 3u);
  }
}

// It has no stage any more, and leaves while a worker of this host is started again.
TEST(CoordinatorRecovery, AHolderOfCopiesThatLeavesMeanwhileIsNotAskedForThem) {
  Cluster cluster(kThree, 1, 0, /*replicate_every=*/1);
  cluster.central_hears_states_ = false;
  cluster.returns_ = false;
  cluster.planner().at_barrier = [](const BarrierReport& report) -> BarrierDecision {
    if (report.step != 80) return KeepPlan{};
    return ChangePlan{PlanOf({0, 1}, {2, 5}), "because"};
  };
  cluster.planner().for_survivors = [](const BarrierReport&) { return PlanOf({0}, {5}); };
  int commits = 0;
  cluster.When([&](const SendControl& send) { return At<CommitPlan>(0)(send) && ++commits == 2; },
               [&] { cluster.Kill(0); });
  cluster.Settle();
  EXPECT_TRUE(cluster->joining());
  cluster.Kill(2);
  cluster.Settle();
  cluster.returns_ = true;
  cluster->EndedBeforeJoining("w0", absl::UnavailableError("signal 9"));
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
}

TEST(CoordinatorRecovery, WhereNobodyComesTheRunEndsWithOneLine) {
  Cluster cluster(kThree);
  cluster.planner().for_survivors = PlanOverThree;
  cluster.When(SecondGrant, [&] { cluster.Kill(1); });
  cluster.Settle();
  for (const int64_t s : {1, 61}) {
    EXPECT_EQ(cluster.ended().message(), "still running");
    cluster->TimerFired(s * 1'000'000'000, 0);
    cluster.Settle();
  }
  EXPECT_EQ(cluster.ended().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(cluster.ended().message()),
            std::string(kNoPlan) + "; nobody who would do has come in 60 s (--worker-timeout-s)");
}

TEST(CoordinatorRecovery, CtrlCEndsTheWait) {
  Cluster cluster(kThree);
  cluster.planner().for_survivors = PlanOverThree;
  cluster.When(SecondGrant, [&] { cluster.Kill(1); });
  cluster.Settle();
  cluster->StopAtBarrier();
  cluster.Settle();
  EXPECT_EQ(cluster.ended().code(), absl::StatusCode::kCancelled);
}

TEST(CoordinatorRecovery, WhereNoPlanFitsALostLocalWorkerIsStartedAgain) {
  Cluster cluster(kThree, /*locals=*/2);
  cluster.planner().for_survivors = PlanOverThree;
  cluster.When(SecondGrant, [&] { cluster.Kill(1); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster.log(), " plan1 b40 lost-w1 start-w1 back40 plan2 b80 b120 end120");
}

// Survivors train on until they hear of it, and what they sent may come at any time.
TEST(CoordinatorRecovery, WhatComesOfTheOldPlanCountsForNothing) {
  Cluster cluster(kThree);
  cluster.When(SecondGrant, [&] {
    cluster.Silence(2);
    cluster.Kill(1);
  });
  cluster.Settle();
  for (int64_t id : {0, 2}) {
    const ConnectionId from(id);
    cluster->Received(from, BarrierReached{Generation(1), Sequence(80)});
    cluster->Received(from, BarrierReached{Generation(1), Sequence(40)});
    cluster->Received(from, Snapshot{Generation(1), Sequence(40), {}});
    cluster->Received(from, Telemetry{.generation = Generation(1), .backwards = 77});
    cluster->Received(from, EvaluationDone{Generation(1), Sequence(0), 1, 1, 25});
    cluster->Received(from, ProfileReport{.layer_seconds = {1}, .generation = Generation(1)});
    cluster->Received(from, StagePrepared{Generation(1)});
    cluster->Received(from, StageReady{Generation(1)});
  }
  cluster.Settle();
  EXPECT_THAT(cluster.log(), EndsWith(" lost-w1"));
  cluster.Kill(2);
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
}

// Decided at 80, which is void: decided again, once.
TEST(CoordinatorRecovery, ChangesOfTheTrainingAfterTheBarrierAreVoid) {
  Cluster cluster(kThree);
  cluster.change_at_ = 80;
  cluster.When(
      [](const SendControl& send) {
        const auto* snapshot = std::get_if<SnapshotRequest>(&send.message);
        return snapshot != nullptr && snapshot->sequence == Sequence(80);
      },
      [&] { cluster.Kill(2); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_TRUE(cluster.prepared().back().changes.empty());
  EXPECT_THAT(cluster.rule_back_, ElementsAre("40"));
  EXPECT_THAT(cluster->ChangesAt(80), ElementsAre(ChangeOfGradientBits(80, {1, 1})));
}

TEST(CoordinatorRecovery, AStopThatIsAskedForMeanwhileIsHeard) {
  Cluster cluster(kThree);
  cluster.When(SecondGrant, [&] {
    cluster->StopAtBarrier();
    cluster.Kill(1);
  });
  cluster.Settle();
  EXPECT_TRUE(cluster.ended().ok()) << cluster.ended();
  EXPECT_THAT(cluster.log(), EndsWith(" back40 plan2 end40"));
}

// A spare: nothing trains on it.
TEST(CoordinatorRecovery, AWorkerWithoutAStageIsNotMissed) {
  Cluster cluster(PlanOf({0, 1}, {2, 5}));
  cluster.When(SecondGrant, [&] { cluster.Kill(2); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster.log(), " plan1 b40 lost-w2 b80 b120 end120");
}

TEST(CoordinatorRecovery, ASpareTakesTheStage) {
  Cluster cluster(PlanOf({0, 1}, {2, 5}));
  cluster.When(SecondGrant, [&] { cluster.Kill(1); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster->plan().stages[1].sole_device(), 2);
}

// While the first plan comes to hold.
TEST(CoordinatorRecovery, InTheFirstPlan) {
  for (const bool local : {false, true}) {
    Cluster cluster(kThree);
    const int64_t lost = local ? 0 : 2;
    cluster.When(At<PrepareStage>(lost), [&] { cluster.Kill(lost); });
    cluster.Settle();
    cluster.ExpectAllTrainedOnce();
    EXPECT_THAT(cluster.log(), HasSubstr(" back0 plan2 b40"));
  }
}

// ---- the GPU or DSP of a worker is lost

constexpr NumberFormat kIntegers = {DType::kInt8, DType::kInt8, DType::kInt8, DType::kInt8,
                                    DType::kInt32};

struct IntegerCluster : Cluster {
  IntegerCluster() : Cluster(kThree, 1, 0, -1, false, kIntegers) {}
};

TEST(CoordinatorRecovery, ALostBackendLosesNoWorker) {
  for (const int64_t lost : {0, 1, 2}) {
    IntegerCluster cluster;
    cluster.When(SecondGrant, [&] { cluster.LoseBackend(lost); });
    cluster.Settle();
    cluster.ExpectAllTrainedOnce();
    EXPECT_EQ(cluster.log(), " plan1 b40 back40 plan2 b80 b120 end120");
    EXPECT_THAT(cluster.phases(), ElementsAre(Phase::kLost, Phase::kPlanned, Phase::kPrepared,
                                              Phase::kFirstGradient, Phase::kCaughtUp));
    EXPECT_EQ(cluster->plan().stages.size(), 3u);
    const std::string name = "w" + std::to_string(lost);
    EXPECT_THAT(cluster.lines(),
                HasSubstr("backend hexagon of worker " + name +
                          " was lost: its program ended; from now on this worker computes on its "
                          "CPU\n"));
    EXPECT_THAT(cluster.lines(), HasSubstr("the run goes on from step 40 on w0, w1, w2"));
  }
}

// Whatever plan is about to hold: the first one, the next one, that of a recovery.
TEST(CoordinatorRecovery, ABackendIsLostWhileAStageIsPrepared) {
  IntegerCluster first;
  first.When(At<CommitPlan>(2), [&] { first.LoseBackend(2); });
  first.Settle();
  first.ExpectAllTrainedOnce();
  EXPECT_THAT(first.log(), HasSubstr(" back0 plan2 b40"));

  IntegerCluster recovering;
  recovering.When(SecondGrant, [&] { recovering.Kill(1); });
  int commits = 0;
  recovering.When(
      [&](const SendControl& send) { return At<CommitPlan>(2)(send) && ++commits == 2; },
      [&] { recovering.LoseBackend(2); });
  recovering.Settle();
  recovering.ExpectAllTrainedOnce();
  EXPECT_EQ(recovering.log(), " plan1 b40 lost-w1 back40 plan2 back40 plan3 b80 b120 end120");
}

TEST(CoordinatorRecovery, WhereBackendsDifferInBytesALostOneEndsTheRun) {
  Cluster cluster(kThree);
  cluster.When(SecondGrant, [&] { cluster.LoseBackend(1); });
  cluster.Settle();
  EXPECT_EQ(cluster.ended().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(std::string(cluster.ended().message()),
            "worker w1: backend hexagon: its program ended");
}

// It said that it would do without.
TEST(CoordinatorRecovery, AWorkerThatGoesOnLosingItsBackendEndsTheRun) {
  IntegerCluster cluster;
  for (int i = 0; i <= Recovery::kMostInVain; ++i)
    cluster.When(At<RunUntil>(1), [&] { cluster.LoseBackend(1); });
  cluster.Settle();
  EXPECT_EQ(cluster.ended().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(cluster.ended().message()),
              HasSubstr("backend hexagon of worker w1 was lost after step 0"));
}

}  // namespace
}  // namespace runnel::coordinator_recovery_test
