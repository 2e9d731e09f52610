// Workers are lost that keep copies of each other's states: training goes on from the last barrier
// of which all layers are left.

#include "tests/central/run/machines/training_cluster.h"

namespace runnel::coordinator_replication_test {
namespace {

using ::testing::HasSubstr;
using Cluster = TrainingCluster;

const Plan kThree = PlanOf({0, 1, 2}, {1, 3, 5});

// Central has nothing later than the beginning, the workers have barrier 80.
TEST(CoordinatorReplication, GoesBackToTheLastBarrierThatTheWorkersHave) {
  for (const int64_t lost : {0, 1, 2}) {
    Cluster cluster(kThree, 1, 0, 1);
    cluster.central_hears_states_ = false;
    cluster.When(ThirdGrant, [&] { cluster.Kill(lost); });
    cluster.Settle();
    cluster.ExpectAllTrainedOnce();
    EXPECT_THAT(cluster.log(), HasSubstr(" back80 plan2")) << lost;
    EXPECT_TRUE(cluster.prepared().back().replica.has_value());
    EXPECT_EQ(cluster->replication().count, 3) << "40, 80, and 80 by the next plan";
    EXPECT_EQ(cluster->replication().bytes, (3 + 3 + (lost == 0 ? 3 : 2)) * 64);
    EXPECT_GT(cluster->replication().stall_s, 0);
  }
}

// Each state has a copy at both of the others.
TEST(CoordinatorReplication, TwoNeighboursAtOnce) {
  for (const bool central_has_it : {false, true}) {
    Cluster cluster(kThree, 1, 0, 1);
    cluster.central_hears_states_ = central_has_it;
    cluster.When(ThirdGrant, [&] {
      cluster.Silence(2);
      cluster.Kill(1);
    });
    cluster.Settle();
    cluster.Kill(2);
    cluster.Settle();
    cluster.ExpectAllTrainedOnce();
    EXPECT_THAT(cluster.log(), HasSubstr(" back80 plan3"));
  }
}

TEST(CoordinatorReplication, TwoThatAreNoNeighbours) {
  Cluster cluster(kThree, 1, 0, 1);
  cluster.central_hears_states_ = false;
  cluster.When(ThirdGrant, [&] {
    cluster.Silence(2);
    cluster.Kill(0);
  });
  cluster.Settle();
  cluster.Kill(2);
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.log(), HasSubstr(" back80 plan"));
}

// One after the other: what the next plan replicated serves.
TEST(CoordinatorReplication, AfterARecoveryThereAreTwoOfEachAgain) {
  Cluster cluster(kThree, 1, 0, 1);
  cluster.central_hears_states_ = false;
  cluster.When(ThirdGrant, [&] { cluster.Kill(1); });
  int grants = 0;
  cluster.When([&](const SendControl& send) { return ThirdGrant(send) && ++grants > 2; },
               [&] { cluster.Kill(2); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.log(), HasSubstr(" lost-w1 back80 plan2 lost-w2 back80 plan3"));
}

// Not all have answered: the barrier before is the last one.
TEST(CoordinatorReplication, LostWhileItReplicates) {
  for (const int64_t lost : {1, 2}) {
    Cluster cluster(kThree, 1, 0, 1);
    cluster.central_hears_states_ = false;
    cluster.When(
        [lost](const SendControl& send) {
          return At<Replicate>(lost)(send) &&
                 std::get<Replicate>(send.message).id.sequence == Sequence(80);
        },
        [&] { cluster.Kill(lost); });
    cluster.Settle();
    cluster.ExpectAllTrainedOnce();
    EXPECT_THAT(cluster.log(), HasSubstr(" back40 plan2")) << lost;
  }
}

// The barrier is not come to again: what was asked for there is asked for again.
TEST(CoordinatorReplication, ACheckPointThatWasOnItsWayIsCollectedAgain) {
  Cluster cluster(kThree, 1, 0, 1, /*checkpoints=*/true);
  cluster.central_hears_states_ = false;
  cluster.When(SecondGrant, [&] {
    cluster.central_hears_states_ = true;
    cluster.Kill(1);
  });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.log(), HasSubstr(" b40 lost-w1 back40 plan2 c40 b80 c80 b120"));
}

TEST(CoordinatorReplication, LostWhileItHandsOverWhatItHas) {
  Cluster cluster(PlanOf({0, 1}, {2, 5}), 1, 0, 1);
  cluster.central_hears_states_ = false;
  // w0 has no stage that w1 could keep: w2, a spare, takes w1's and asks w0.
  cluster.When(ThirdGrant, [&] { cluster.Kill(1); });
  cluster.When(At<FetchLayers>(0), [&] { cluster.Kill(0); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.log(), HasSubstr("lost-w1 lost-w0 start-w0 back0"));
}

}  // namespace
}  // namespace runnel::coordinator_replication_test
