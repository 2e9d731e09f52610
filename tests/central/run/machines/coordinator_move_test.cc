// Moving layers at a barrier: what each worker is asked for and given, and what is left when a
// worker goes or refuses in between.

#include <map>
#include <set>

#include "central/run/machines/coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/central/run/machines/coordinator_run.h"
#include "tests/central/scripted_planner.h"

namespace runnel::coordinator_move_test {
namespace {

using ::testing::HasSubstr;

// Workers that keep the layers that they were given, as the real ones do.
class Cluster {
 public:
  enum class Trouble { kNone, kLeavesAside, kRefuses };

  // `next` is wanted at step 40. LeNet has layers 0..5.
  Cluster(int workers, const Plan& first, const Plan& next) {
    CoordinatorOptions options = LeNetRun(workers - 1);
    options.link_token = "secret";
    options.initial_state = InitialState(options.stage.model, 1).value();
    planner_.first_plan = [first](const auto&) { return first; };
    planner_.at_barrier = [this, next](const BarrierReport& report) -> BarrierDecision {
      reports_.push_back(report.step);
      if (report.step != 40 && !wants_again_) return KeepPlan{};
      return ChangePlan{next, "because"};
    };
    options.planner = &planner_;
    coordinator_ = Coordinator::Create(std::move(options)).value();
    JoinWorkers(*coordinator_, workers);
  }

  // Carries effects out until there are none.
  void Settle() {
    for (auto effects = coordinator_->TakeEffects(); !effects.empty();
         effects = coordinator_->TakeEffects()) {
      for (RunEffect& effect : effects) {
        if (auto* send = std::get_if<SendControl>(&effect)) Answer(*send);
        if (auto* persist = std::get_if<Persist>(&effect)) {
          if (auto* plan = std::get_if<PlanDecided>(&persist->record)) plans_.push_back(*plan);
        }
        if (auto* state = std::get_if<StateCollected>(&effect)) {
          collected_ = state->state;
          collected_step_ = state->step;
        }
        if (auto* feed = std::get_if<ConnectFeed>(&effect)) feeds_.push_back(*feed);
        if (auto* line = std::get_if<LogLine>(&effect)) log_ += line->text + "\n";
        if (auto* ended = std::get_if<RunEnded>(&effect)) ended_ = ended->status;
      }
    }
  }

  Trouble trouble_ = Trouble::kNone;
  int troubled_ = -1;  // device
  bool stop_while_moving_ = false;
  bool wants_again_ = false;  // the plan, at step 80 too; no trouble then, but late answers

  std::vector<int64_t> reports_;
  std::vector<PlanDecided> plans_;
  std::vector<ConnectFeed> feeds_;
  std::string log_;
  absl::Status ended_ = absl::UnknownError("still running");
  ModelState collected_;
  int64_t collected_step_ = -1;
  std::map<int, std::set<int>> fetched_, given_;  // layers by device
  std::set<int> took_back_;                       // devices

 private:
  struct Worker {
    std::optional<PrepareStage> stage, aside;
    bool gone = false;
  };

  ModelState StateOf(const PrepareStage& stage) const {
    const StagePlan& range = stage.plan.stages[stage.stage];
    return Slice(stage.state, range.first_layer, range.last_layer);
  }

  void Answer(const SendControl& send) {
    const int id = static_cast<int>(send.connection.value());
    Worker& worker = workers_[id];
    if (worker.gone) return;
    const auto reply = [&](WorkerMessage message) {
      coordinator_->Received(send.connection, message);
    };
    if (const auto* prepare = std::get_if<PrepareStage>(&send.message)) {
      PrepareAside(id, *prepare);
    } else if (const auto* fetch = std::get_if<FetchLayers>(&send.message)) {
      if (stop_while_moving_) coordinator_->StopAtBarrier();
      LayersFetched answer{fetch->generation, {}};
      for (const LayerRange& range : fetch->ranges) {
        Merge(Slice(StateOf(*worker.stage), range.first_layer, range.last_layer), answer.state);
        for (int l = range.first_layer; l <= range.last_layer; ++l) fetched_[id].insert(l);
      }
      reply(std::move(answer));
    } else if (const auto* commit = std::get_if<CommitPlan>(&send.message)) {
      worker.stage = std::exchange(worker.aside, std::nullopt);
      if (worker.stage.has_value()) reply(StageReady{commit->generation});
    } else if (std::holds_alternative<AbortPlan>(send.message)) {
      worker.aside.reset();
      took_back_.insert(id);
    } else if (const auto* run = std::get_if<RunUntil>(&send.message)) {
      reply(BarrierReached{worker.stage->plan.generation, run->limit});
    } else if (const auto* snapshot = std::get_if<SnapshotRequest>(&send.message)) {
      reply(Snapshot{worker.stage->plan.generation, snapshot->sequence, StateOf(*worker.stage)});
    }
  }

  void PrepareAside(int id, const PrepareStage& prepare) {
    Worker& worker = workers_[id];
    const bool first = prepare.plan.generation == Generation(1);
    for (const LayerState& layer : prepare.state.layers) {
      if (!first) given_[id].insert(layer.layer);
    }
    if (trouble_ == Trouble::kLeavesAside && id == troubled_ && !first) {
      worker.gone = true;
      return coordinator_->Gone(ConnectionId(id), absl::UnavailableError("killed"));
    }
    if (prepare.plan.generation == Generation(3)) {
      for (const int late : {0, 1, 2})
        coordinator_->Received(ConnectionId(late), StagePrepared{Generation(2)});
      coordinator_->Received(ConnectionId(2), StageFailed{Generation(2), "too late", true});
    } else if (trouble_ == Trouble::kRefuses && id == troubled_ && !first) {
      return coordinator_->Received(ConnectionId(id),
                                    StageFailed{prepare.plan.generation, "no memory for it", true});
    }
    worker.aside = prepare;
    if (worker.stage.has_value()) {
      worker.aside->state = StateOf(*worker.stage);
      Merge(prepare.state, worker.aside->state);
    }
    coordinator_->Received(ConnectionId(id), StagePrepared{prepare.plan.generation});
  }

  std::map<int, Worker> workers_;
  ScriptedPlanner planner_;
  std::optional<Coordinator> coordinator_;
};

void ExpectWholeState(const Cluster& cluster) {
  EXPECT_TRUE(cluster.ended_.ok()) << cluster.ended_;
  const ModelSpec model = MakeModel("lenet").value();
  EXPECT_EQ(cluster.collected_, InitialState(model, 1).value());
}

TEST(CoordinatorMove, OnlyLayersThatMoveTravel) {
  Cluster cluster(3, PlanOf({0, 1, 2}, {1, 3, 5}), PlanOf({0, 1, 2}, {0, 3, 5}));
  cluster.Settle();
  ExpectWholeState(cluster);
  EXPECT_EQ(cluster.fetched_, (std::map<int, std::set<int>>{{0, {1}}}));
  EXPECT_EQ(cluster.given_, (std::map<int, std::set<int>>{{1, {1}}}));
  EXPECT_EQ(cluster.reports_, (std::vector<int64_t>{40, 80}));
  ASSERT_EQ(cluster.plans_.size(), 2);
  EXPECT_EQ(cluster.plans_[1].from_step, 40);
  EXPECT_EQ(cluster.plans_[1].plan.generation, Generation(2));
  EXPECT_EQ(cluster.plans_[1].plan.stages[0].last_layer, 0);
  ASSERT_EQ(cluster.feeds_.size(), 2);
  EXPECT_EQ(cluster.feeds_[1].first_sequence, Sequence(40));
  EXPECT_NE(cluster.feeds_[0].first.token, cluster.feeds_[1].first.token);
}

// Any plan to any other: other orders, fewer devices, a device that had nothing.
TEST(CoordinatorMove, EveryPlanCanFollowEveryOther) {
  const std::vector<Plan> plans = {PlanOf({0, 1, 2}, {1, 3, 5}),
                                   PlanOf({0, 2, 1}, {1, 3, 5}),
                                   PlanOf({0, 1}, {2, 5}),
                                   PlanOf({0, 2}, {0, 5}),
                                   PlanOf({0}, {5}),
                                   PlanOf({0, 2, 1}, {3, 4, 5})};
  for (const Plan& from : plans) {
    for (const Plan& to : plans) {
      Cluster cluster(3, from, to);
      cluster.Settle();
      ExpectWholeState(cluster);
      EXPECT_EQ(cluster.plans_.size(), from.stages == to.stages ? 1 : 2);
    }
  }
}

TEST(CoordinatorMove, RefusedMoveLeavesThePlanAsItWas) {
  Cluster cluster(3, PlanOf({0, 1, 2}, {1, 3, 5}), PlanOf({0, 1, 2}, {0, 3, 5}));
  cluster.trouble_ = Cluster::Trouble::kRefuses;
  cluster.troubled_ = 1;
  cluster.Settle();
  ExpectWholeState(cluster);
  EXPECT_EQ(cluster.plans_.size(), 1);
  EXPECT_EQ(cluster.took_back_, (std::set<int>{0, 1, 2}));
  EXPECT_THAT(cluster.log_, HasSubstr("worker w1: no memory for it"));
}

TEST(CoordinatorMove, SpareThatDiesBetweenThePhasesIsNotMissed) {
  Cluster cluster(3, PlanOf({0, 1}, {2, 5}), PlanOf({0, 1, 2}, {0, 3, 5}));
  cluster.trouble_ = Cluster::Trouble::kLeavesAside;
  cluster.troubled_ = 2;
  cluster.Settle();
  ExpectWholeState(cluster);
  EXPECT_EQ(cluster.plans_.size(), 1);
  EXPECT_EQ(cluster.took_back_, (std::set<int>{0, 1}));
  EXPECT_THAT(cluster.log_, HasSubstr("worker w2 was lost"));
}

// The plan before is gone with it: another one takes the place of both.
TEST(CoordinatorMove, StageThatDiesBetweenThePhasesIsRecoveredFrom) {
  Cluster cluster(3, PlanOf({0, 1, 2}, {1, 3, 5}), PlanOf({0, 1, 2}, {0, 3, 5}));
  cluster.trouble_ = Cluster::Trouble::kLeavesAside;
  cluster.troubled_ = 1;
  cluster.Settle();
  ExpectWholeState(cluster);
  ASSERT_EQ(cluster.plans_.size(), 2u);
  EXPECT_EQ(cluster.plans_[1].plan.generation, Generation(3));
  EXPECT_EQ(cluster.plans_[1].plan.stages.size(), 2u);
  EXPECT_EQ(cluster.took_back_, (std::set<int>{0, 2}));
}

// The move that is tried again has another number: a late answer to the first one fits no other.
TEST(CoordinatorMove, ALateAnswerToAnAbortedMoveCountsForNothing) {
  Cluster cluster(3, PlanOf({0, 1}, {2, 5}), PlanOf({0, 1, 2}, {0, 3, 5}));
  cluster.wants_again_ = true;
  cluster.trouble_ = Cluster::Trouble::kRefuses;
  cluster.troubled_ = 2;
  cluster.Settle();
  ExpectWholeState(cluster);
  ASSERT_EQ(cluster.plans_.size(), 2u);
  EXPECT_EQ(cluster.plans_[1].from_step, 80);
  EXPECT_EQ(cluster.plans_[1].plan.generation, Generation(3));
}

TEST(CoordinatorMove, StopAskedForWhileLayersMoveIsHeardAtOnce) {
  Cluster cluster(3, PlanOf({0, 1, 2}, {1, 3, 5}), PlanOf({0, 1, 2}, {0, 3, 5}));
  cluster.stop_while_moving_ = true;
  cluster.Settle();
  ExpectWholeState(cluster);
  EXPECT_EQ(cluster.collected_step_, 40);
}

}  // namespace
}  // namespace runnel::coordinator_move_test
