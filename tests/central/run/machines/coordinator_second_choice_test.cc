// A recovery that is refused, and a value that is no finite number: what the run tries before it
// ends.

#include "tests/central/run/machines/training_cluster.h"

namespace runnel::coordinator_second_choice_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using Cluster = TrainingCluster;

const Plan kThree = PlanOf({0, 1, 2}, {1, 3, 5});

// A copy that central counted on is not there, or has a value that is no number: central's own
// state is older, and whole.
TEST(CoordinatorSecondChoice, ACopyThatIsRefusedIsReplacedByCentralsState) {
  for (const bool fetched : {false, true}) {
    // Of two stages the spare w2 takes the lost one, and asks w0 for the copy.
    Cluster cluster(fetched ? PlanOf({0, 1}, {2, 5}) : kThree, 1, 0, 1);
    cluster.central_hears_states_ = false;
    cluster.When(ThirdGrant, [&] { cluster.Kill(1); });
    const int64_t refuses = fetched ? 0 : 2;
    const auto in_recovery = [&](const SendControl& send) {
      const auto* prepare = std::get_if<PrepareStage>(&send.message);
      const auto* fetch = std::get_if<FetchLayers>(&send.message);
      return fetched ? fetch != nullptr && fetch->replica.has_value()
                     : prepare != nullptr && prepare->replica.has_value();
    };
    cluster.When(in_recovery, [&] {
      cluster->Received(ConnectionId(refuses),
                        StageFailed{Generation(2), "has no copy of layer 3"});
    });
    cluster.Settle();
    cluster.ExpectAllTrainedOnce();
    EXPECT_THAT(cluster.log(), HasSubstr(" lost-w1 back0 plan3")) << fetched;
    EXPECT_THAT(cluster.lines(),
                HasSubstr(absl::StrCat("worker w", refuses,
                                       ": has no copy of layer 3: the run goes on from the last "
                                       "state that central has instead")));
    EXPECT_FALSE(cluster.prepared().back().replica.has_value());
  }
}

// Its state is central's already: the run does without the worker that refuses.
TEST(CoordinatorSecondChoice, AWorkerThatCannotPrepareItsPartIsLeftOut) {
  Cluster cluster(kThree);
  cluster.When(SecondGrant, [&] {
    cluster.Silence(2);
    cluster.Kill(1);
  });
  cluster.Settle();
  cluster->Received(ConnectionId(2), StageFailed{Generation(1), "its neighbour is gone"});
  cluster.Settle();
  EXPECT_THAT(cluster.log(), EndsWith(" lost-w1")) << "of the stage that it had";
  cluster->Received(ConnectionId(2), StageFailed{Generation(2), "no memory"});
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster.log(), " plan1 b40 lost-w1 back40 plan3 b80 b120 end120");
  EXPECT_EQ(cluster->plan().stages.size(), 1u);
  EXPECT_THAT(cluster.lines(), HasSubstr("worker w2 failed: no memory; the run goes on"));
}

TEST(CoordinatorSecondChoice, SoIsOneThatCannotPrepareItsFirstStage) {
  for (const bool unfit : {false, true}) {
    Cluster cluster(kThree);
    cluster.When(At<PrepareStage>(1), [&] {
      cluster->Received(ConnectionId(1), StageFailed{Generation(1), "no memory", unfit});
    });
    cluster.Settle();
    if (unfit) {
      EXPECT_EQ(cluster.ended().code(), absl::StatusCode::kInvalidArgument) << cluster.ended();
      continue;
    }
    cluster.ExpectAllTrainedOnce();
    EXPECT_EQ(cluster.log(), " back0 plan2 b40 b80 b120 end120");
    EXPECT_EQ(cluster->plan().stages.size(), 2u);
  }
}

TEST(CoordinatorSecondChoice, WhereTheLastLocalWorkerRefusesItEnds) {
  Cluster cluster(kThree);
  cluster.When(SecondGrant, [&] {
    cluster.Silence(0);
    cluster.Kill(1);
  });
  cluster.Settle();
  cluster->Received(ConnectionId(0), StageFailed{Generation(2), "no memory"});
  cluster.Settle();
  EXPECT_EQ(std::string(cluster.ended().message()), "worker w0: no memory");
}

// The plan holds, and a stage cannot reach its neighbour.
TEST(CoordinatorSecondChoice, AStageThatFailsBeforeItTrainsIsLeftOutToo) {
  Cluster cluster(kThree);
  cluster.When(SecondGrant, [&] { cluster.Kill(1); });
  int commits = 0;
  cluster.When([&](const SendControl& send) { return At<CommitPlan>(2)(send) && ++commits == 2; },
               [&] {
                 cluster.Silence(2);
                 cluster->Received(ConnectionId(2), StageFailed{Generation(2), "link: refused"});
               });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster.log(), " plan1 b40 lost-w1 back40 plan2 back40 plan3 b80 b120 end120");
}

// Scripts start a run again that ended with code 1, and not with 2.
TEST(CoordinatorSecondChoice, WhatDoesNotFitAWorkerThatTrainedIsNoWrongInput) {
  Cluster cluster(kThree);
  cluster.When(SecondGrant, [&] {
    cluster->Received(ConnectionId(2), StageFailed{Generation(1), "no such thing", true});
  });
  cluster.Settle();
  EXPECT_EQ(cluster.ended().code(), absl::StatusCode::kAborted) << cluster.ended();
}

// ---- a value that is no finite number

StageFailed NoNumber(int32_t generation, NotFinite from) {
  return {Generation(generation), "the loss is not finite", false, "", from};
}

TEST(CoordinatorSecondChoice, AValueThatIsNoNumberCostsABarrierAndTheWorkerThatMadeIt) {
  for (const NotFinite from : {NotFinite::kOwn, NotFinite::kUpstream}) {
    Cluster cluster(kThree);
    cluster.When(SecondGrant, [&] { cluster->Received(ConnectionId(2), NoNumber(1, from)); });
    cluster.Settle();
    cluster.ExpectAllTrainedOnce();
    EXPECT_EQ(cluster.log(), " plan1 b40 back40 plan2 b80 b120 end120");
    EXPECT_FALSE(cluster->plan().Uses(from == NotFinite::kOwn ? 2 : 1));
    EXPECT_THAT(cluster.released(), IsSupersetOf({0, 1, 2})) << "they are all there";
  }
}

// Training diverges, whoever computes it.
TEST(CoordinatorSecondChoice, WhereItComesAgainAtTheSamePlaceItEnds) {
  Cluster cluster(kThree);
  cluster.When(SecondGrant,
               [&] { cluster->Received(ConnectionId(2), NoNumber(1, NotFinite::kOwn)); });
  int grants = 0;
  cluster.When([&](const SendControl& send) { return SecondGrant(send) && ++grants == 4; },
               [&] { cluster->Received(ConnectionId(1), NoNumber(2, NotFinite::kOwn)); });
  cluster.Settle();
  EXPECT_EQ(std::string(cluster.ended().message()), "worker w1: the loss is not finite");
  EXPECT_THAT(cluster.log(), EndsWith(" back40 plan2 end40"));
}

TEST(CoordinatorSecondChoice, PastItTheNextOneIsAnother) {
  Cluster cluster(kThree);
  cluster.When(SecondGrant,
               [&] { cluster->Received(ConnectionId(2), NoNumber(1, NotFinite::kOwn)); });
  cluster.When(ThirdGrant,
               [&] { cluster->Received(ConnectionId(1), NoNumber(2, NotFinite::kOwn)); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster->plan().stages.size(), 1u);
}

// ---- who is lost beside a move

TEST(CoordinatorSpare, AMoveThatDoesNotUseItGoesOnWithoutIt) {
  Cluster cluster(PlanOf({0, 1}, {2, 5}));
  cluster.planner().at_barrier = [&](const BarrierReport& report) -> BarrierDecision {
    if (report.step != 40) return KeepPlan{};
    return ChangePlan{PlanOf({0, 1}, {3, 5}), "because"};
  };
  cluster.When(At<FetchLayers>(1), [&] { cluster.Kill(2); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster.log(), " plan1 b40 lost-w2 plan2 b80 b120 end120");
}

}  // namespace
}  // namespace runnel::coordinator_second_choice_test
