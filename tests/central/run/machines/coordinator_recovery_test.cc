// Workers are lost at every point of a run: training goes on from a barrier, each step is trained
// once, and what is still on its way from before counts for nothing.

#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "central/run/machines/coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/central/run/machines/machine_effects.h"
#include "tests/central/scripted_planner.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using Phase = RecoveryReached::Phase;

// A layer's state is how many micro-batches it has been trained with. Some layers have none.
int64_t Trained(const LayerState& layer) {
  int64_t count = 0;
  std::memcpy(&count, layer.tensors.front().bytes.data(), sizeof(count));
  return count;
}

void Train(int64_t count, ModelState& state) {
  for (LayerState& layer : state.layers) {
    if (layer.tensors.empty()) continue;
    const int64_t sum = Trained(layer) + count;
    std::memcpy(layer.tensors.front().bytes.data(), &sum, sizeof(sum));
  }
}

ModelState Untrained(const ModelSpec& model) {
  ModelState state = InitialState(model, 1).value();
  for (LayerState& layer : state.layers) {
    if (!layer.tensors.empty()) layer.tensors.front().bytes.replace(0, 8, 8, '\0');
  }
  return state;
}

// Once, at the first message that fits.
using Trigger = std::function<bool(const SendControl&)>;

template <typename Message>
Trigger At(int64_t connection) {
  return [connection](const SendControl& send) {
    return send.connection == ConnectionId(connection) &&
           std::holds_alternative<Message>(send.message);
  };
}
// The grant from 40 to 80.
bool SecondGrant(const SendControl& send) {
  const auto* run = std::get_if<RunUntil>(&send.message);
  return run != nullptr && run->limit == Sequence(80);
}

class Cluster {
 public:
  // LeNet has layers 0..5. Barriers at 40, 80 and 120, the end.
  explicit Cluster(const Plan& first, int locals = 1, int64_t eval_samples = 0) {
    CoordinatorOptions options;
    options.stage.model = model_;
    options.stage.training.dataset_samples = 1200;
    options.stage.training.batch_size = 10;
    options.stage.training.eval_batch_size = 10;
    options.barriers.rule = {.every = 40,
                             .eval_every_epochs = eval_samples > 0 ? 1 : 0,
                             .steps_per_epoch = 80,
                             .epochs = 3};
    options.barriers.stop_step = 120;
    options.barriers.eval_samples = eval_samples;
    options.barriers.eval_batch_size = 10;
    const int workers = 3;
    options.roster = {.local_workers = locals,
                      .dialling_workers = workers - locals,
                      .recipe = "fp32",
                      .codecs = {CodecId::Identity()}};
    options.initial_state = Untrained(model_);
    options.training_rule = &rule_;
    planner_.first_plan = [first](const auto&) { return first; };
    options.planner = &planner_;
    coordinator_ = Coordinator::Create(std::move(options)).value();
    for (int i = 0; i < workers; ++i)
      coordinator_->Joined(ConnectionId(i), SampleHello("w" + std::to_string(i)), i < locals);
  }

  // `what` happens before the message that fits is answered, once.
  void When(Trigger trigger, std::function<void()> what) {
    hooks_.emplace_back(std::move(trigger), std::move(what));
  }
  void Kill(int64_t connection) {
    workers_[connection].gone = true;
    coordinator_->Gone(ConnectionId(connection), absl::UnavailableError("killed"));
  }
  // Lost, and central does not know yet.
  void Silence(int64_t connection) { workers_[connection].gone = true; }

  // Carries effects out until there are none.
  void Settle() {
    for (auto effects = coordinator_->TakeEffects(); !effects.empty();
         effects = coordinator_->TakeEffects()) {
      for (RunEffect& effect : effects) std::visit([this](auto& one) { CarryOut(one); }, effect);
    }
  }

  Coordinator* operator->() { return &*coordinator_; }
  ScriptedPlanner& planner() { return planner_; }
  const std::string& log() const { return log_; }
  const std::string& lines() const { return lines_; }
  const absl::Status& ended() const { return ended_; }
  const std::vector<Phase>& phases() const { return phases_; }
  const std::vector<int32_t>& generations() const { return generations_; }
  const std::vector<PrepareStage>& prepared() const { return prepared_; }
  std::vector<int64_t> rule_back_;  // steps to which the training rule was taken back
  bool returns_ = true;             // a local worker that is started again joins
  int64_t change_at_ = -1;

  // The last state: each layer was trained once with everything.
  void ExpectAllTrainedOnce() {
    EXPECT_TRUE(ended_.ok()) << ended_ << log_;
    ASSERT_EQ(final_.layers.size(), 6u) << log_;
    for (const LayerState& layer : final_.layers) {
      if (layer.tensors.empty()) continue;
      EXPECT_EQ(Trained(layer), 120) << layer.layer;
    }
    EXPECT_THAT(log_, EndsWith(" b120 end120"));
    // A generation is never used twice.
    EXPECT_EQ(std::set<int32_t>(generations_.begin(), generations_.end()).size(),
              generations_.size());
  }

 private:
  struct Worker {
    std::optional<PrepareStage> stage, aside;
    int64_t trained = 0;
    bool gone = false;
  };
  class Rule final : public TrainingRule {
   public:
    explicit Rule(Cluster* cluster) : cluster_(cluster) {}
    std::optional<ChangeTraining> AtBarrier(const BarrierReport& report) override {
      if (report.step != cluster_->change_at_) return std::nullopt;
      return ChangeTraining{{report.step, {1, 1}}, "because"};
    }
    void GoBackTo(int64_t step) override { cluster_->rule_back_.push_back(step); }

   private:
    Cluster* cluster_;
  };

  template <typename Effect>
  void CarryOut(Effect&) {}
  void CarryOut(SendControl& send) {
    for (auto& [trigger, what] : hooks_) {
      if (trigger != nullptr && trigger(send)) {
        trigger = nullptr;
        std::exchange(what, nullptr)();
        break;
      }
    }
    Answer(send);
  }
  void CarryOut(Persist& persist) {
    if (const auto* plan = std::get_if<PlanDecided>(&persist.record)) {
      log_ += " plan" + std::to_string(plan->plan.generation.value());
      generations_.push_back(plan->plan.generation.value());
    }
    if (const auto* barrier = std::get_if<BarrierPassed>(&persist.record))
      log_ += " b" + std::to_string(barrier->step);
    if (const auto* e = std::get_if<EvaluationRecorded>(&persist.record))
      log_ += " e" + std::to_string(e->step);
    if (const auto* lost = std::get_if<WorkerLost>(&persist.record)) log_ += " lost-" + lost->name;
    if (const auto* recovered = std::get_if<Recovered>(&persist.record))
      log_ += " back" + std::to_string(recovered->step);
  }
  void CarryOut(StateCollected& state) {
    if (state.use.final) final_ = state.state;
  }
  void CarryOut(StartLocalWorker& start) {
    log_ += " start-" + start.name;
    if (returns_)
      coordinator_->Joined(ConnectionId(next_connection_++), SampleHello(start.name), true);
  }
  void CarryOut(StopFeed&) { feed_stands_ = false; }
  void CarryOut(ConnectFeed& feed) {
    feed_stands_ = true;
    fed_until_ = feed.first_sequence;
  }
  void CarryOut(FeedUntil& feed) {
    EXPECT_TRUE(feed_stands_) << "samples for stages that are no more";
    EXPECT_GT(feed.limit, fed_until_);
    fed_until_ = feed.limit;
  }
  void CarryOut(RecoveryReached& reached) { phases_.push_back(reached.phase); }
  void CarryOut(LogLine& line) { lines_ += line.text + "\n"; }
  void CarryOut(RunEnded& ended) {
    log_ += " end" + std::to_string(ended.step);
    ended_ = ended.status;
  }

  ModelState StateOf(const Worker& worker) const {
    const StagePlan& range = worker.stage->plan.stages[static_cast<size_t>(worker.stage->stage)];
    ModelState state = Slice(worker.stage->state, range.first_layer, range.last_layer);
    Train(worker.trained, state);
    return state;
  }

  void Answer(const SendControl& send) {
    const int64_t id = send.connection.value();
    Worker& worker = workers_[id];
    if (worker.gone) return;
    const auto reply = [&](WorkerMessage message) {
      coordinator_->Received(send.connection, message);
    };
    if (const auto* prepare = std::get_if<PrepareStage>(&send.message)) {
      prepared_.push_back(*prepare);
      worker.aside = *prepare;
      if (prepare->starts_over) {
        worker.stage.reset();
      } else if (worker.stage.has_value()) {
        worker.aside->state = StateOf(worker);
        Merge(prepare->state, worker.aside->state);
      }
      reply(StagePrepared{prepare->plan.generation});
    } else if (const auto* fetch = std::get_if<FetchLayers>(&send.message)) {
      LayersFetched answer{fetch->generation, {}};
      for (const LayerRange& range : fetch->ranges)
        Merge(Slice(StateOf(worker), range.first_layer, range.last_layer), answer.state);
      reply(std::move(answer));
    } else if (const auto* commit = std::get_if<CommitPlan>(&send.message)) {
      worker.stage = std::exchange(worker.aside, std::nullopt);
      worker.trained = 0;
      if (worker.stage.has_value()) reply(StageReady{commit->generation});
    } else if (std::holds_alternative<AbortPlan>(send.message)) {
      worker.aside.reset();
    } else if (worker.stage.has_value()) {
      AnswerForStage(worker, send, reply);
    }
  }

  template <typename Reply>
  void AnswerForStage(Worker& worker, const SendControl& send, const Reply& reply) {
    const Generation generation = worker.stage->plan.generation;
    if (const auto* run = std::get_if<RunUntil>(&send.message)) {
      if (run->generation != generation) return;
      worker.trained = run->limit.value() - worker.stage->first_sequence.value();
      Telemetry telemetry{.generation = generation, .backwards = run->limit.value()};
      telemetry.loss_samples = telemetry.backwards;
      reply(telemetry);
      reply(BarrierReached{generation, run->limit});
    } else if (const auto* snapshot = std::get_if<SnapshotRequest>(&send.message)) {
      if (snapshot->generation != generation) return;
      reply(Snapshot{generation, snapshot->sequence, StateOf(worker)});
    } else if (const auto* evaluate = std::get_if<EvaluateRequest>(&send.message)) {
      const bool has_loss =
          worker.stage->stage + 1 == static_cast<int>(worker.stage->plan.stages.size());
      if (evaluate->generation == generation && has_loss)
        reply(EvaluationDone{generation, evaluate->first, 5.0, 20, 25});
    }
  }

  ModelSpec model_ = MakeModel("lenet").value();
  Rule rule_{this};
  ScriptedPlanner planner_;
  std::optional<Coordinator> coordinator_;
  std::vector<std::pair<Trigger, std::function<void()>>> hooks_;
  std::map<int64_t, Worker> workers_;  // by connection
  int64_t next_connection_ = 100;
  bool feed_stands_ = false;
  Sequence fed_until_;
  std::string log_;
  std::string lines_;
  std::vector<Phase> phases_;
  std::vector<int32_t> generations_;
  std::vector<PrepareStage> prepared_;
  ModelState final_;
  absl::Status ended_ = absl::UnknownError("still running");
};

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
    EXPECT_THAT(cluster.lines(), HasSubstr("training goes on from step 40 on w0, w"));
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
  EXPECT_EQ(cluster->plan().stages[0].device, DeviceId(0));
}

TEST(CoordinatorRecovery, AnotherLocalWorkerTakesStage0) {
  Cluster cluster(kThree, 2);
  cluster.When(SecondGrant, [&] { cluster.Kill(0); });
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_THAT(cluster.log(), Not(HasSubstr("start")));
  EXPECT_EQ(cluster->plan().stages[0].device, DeviceId(1));
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
  for (int64_t id = 100; id < 100 + Recovery::kMostInVain; ++id)
    cluster.When(At<RunUntil>(id), [&cluster, id] { cluster.Kill(id); });
  cluster.When(SecondGrant, [&] { cluster.Kill(0); });
  cluster.Settle();
  EXPECT_EQ(cluster.ended().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(cluster.ended().message()), HasSubstr("were started 10 times"));
}

TEST(CoordinatorRecovery, AWorkerThatEndsBeforeItJoinsIsStartedOnceMore) {
  Cluster cluster(kThree);
  cluster.returns_ = false;
  cluster.When(SecondGrant, [&] { cluster.Kill(0); });
  cluster.Settle();
  EXPECT_TRUE(cluster->joining());
  cluster.returns_ = true;
  cluster->EndedBeforeJoining(absl::UnavailableError("signal 9"));
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_FALSE(cluster->joining());
  EXPECT_THAT(cluster.log(), HasSubstr(" start-w0 start-w0 back40"));
}

TEST(CoordinatorRecovery, WhereNoPlanFitsTheRunEndsWithOneLine) {
  Cluster cluster(kThree);
  cluster.planner().for_survivors = [](const BarrierReport& report) -> absl::StatusOr<Plan> {
    EXPECT_TRUE(report.devices[1].is_lost);
    return absl::InvalidArgumentError("conv2 needs 3 MB, w2 has 1 MB");
  };
  cluster.When(SecondGrant, [&] { cluster.Kill(1); });
  cluster.Settle();
  EXPECT_EQ(cluster.ended().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(cluster.ended().message()),
            "worker w1 was lost after step 40 (killed), and no plan fits the workers that are "
            "left: conv2 needs 3 MB, w2 has 1 MB");
}

TEST(CoordinatorRecovery, AStageThatCannotBePreparedEndsIt) {
  Cluster cluster(kThree);
  cluster.When(SecondGrant, [&] {
    cluster.Silence(2);
    cluster.Kill(1);
  });
  cluster.Settle();
  cluster->Received(ConnectionId(2), StageFailed{Generation(1), "its neighbour is gone"});
  cluster.Settle();
  EXPECT_THAT(cluster.log(), Not(HasSubstr("end"))) << "of the stage that it had";
  cluster->Received(ConnectionId(2), StageFailed{Generation(2), "no memory"});
  cluster.Settle();
  EXPECT_THAT(std::string(cluster.ended().message()), HasSubstr("worker w2: no memory"));
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
  EXPECT_THAT(cluster.rule_back_, ElementsAre(40));
  EXPECT_EQ(cluster->changes(), (std::vector<TrainingChange>{{80, {1, 1}}}));
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
  EXPECT_EQ(cluster->plan().stages[1].device, DeviceId(2));
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

}  // namespace
}  // namespace runnel
