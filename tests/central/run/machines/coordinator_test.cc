#include "central/run/machines/coordinator.h"

#include "central/planning/rules/loss_interval.h"
#include "central/run/waiting.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "proto/base/training/recipe_family.h"
#include "tests/central/run/machines/coordinator_run.h"
#include "tests/central/sample_hello.h"
#include "tests/central/scripted_planner.h"

namespace runnel::coordinator_test {
namespace {

using ::testing::HasSubstr;

// Wants other gradient bits at one step.
class OneChange final : public TrainingRule {
 public:
  explicit OneChange(const int64_t* change_at) : change_at_(change_at) {}
  std::optional<ChangeTraining> AtBarrier(const BarrierReport& report) override {
    if (report.step != *change_at_) return std::nullopt;
    return ChangeTraining{ChangeOfGradientBits(report.step, {1, 1}), "because"};
  }
  std::string State() const override { return ""; }
  absl::Status Restore(absl::string_view) override { return absl::OkStatus(); }

 private:
  const int64_t* change_at_;
};

enum class Evaluation { kThroughThePipeline, kBeside };

// Answers the coordinator as well-behaved workers would, and keeps what it wanted.
class Cluster {
 public:
  explicit Cluster(int workers, int64_t stop_step = 250, bool checkpoints = true,
                   bool profile = false, const NumberFormat& format = {},
                   const std::string& backend = "auto",
                   Evaluation evaluation = Evaluation::kThroughThePipeline, bool recovers = true,
                   int64_t early_stop = 0, int64_t barrier_every = 40) {
    CoordinatorOptions options = LeNetRun(workers - 1);
    options.early_stop = EarlyStop(early_stop, /*by_loss=*/false);
    options.recovers = recovers;
    options.evaluates_beside = evaluation == Evaluation::kBeside;
    options.barriers.rule = {
        .every = barrier_every, .eval_every_epochs = 1, .steps_per_epoch = 100, .epochs = 5};
    options.barriers.eval_samples = 25;
    options.barriers.eval_batch_size = 10;
    options.barriers.stop_step = stop_step;
    options.roster.backend = backend;
    options.collect_at_barriers = checkpoints;
    options.needs_profile = profile;
    options.format = format;
    options.initial_state = InitialState(options.stage.model, 1, format).value();
    state_ = options.initial_state;
    planner_.first_plan = [workers, &model = model_](const std::vector<DeviceFacts>& devices) {
      Plan plan;
      plan.generation = Generation(1);
      for (int i = 0; i < workers; ++i) {
        const int last = i + 1 == workers ? 5 : i;
        plan.stages.push_back({{Seat{DeviceId(i)}}, i, last, workers - i});
        if (i > 0) plan.links.emplace_back();
      }
      model = devices.size();
      return plan;
    };
    options.planner = &planner_;
    rules_.Add("one change", std::make_unique<OneChange>(&change_at_));
    options.rules = &rules_;
    coordinator_ = Coordinator::Create(std::move(options)).value();
  }

  Cluster(int workers, int64_t stop_step, Evaluation evaluation, int64_t early_stop = 0)
      : Cluster(workers, stop_step, true, false, {}, "auto", evaluation, true, early_stop) {}

  static WorkerHello Hello(const std::string& name) { return SampleHello(name); }

  Coordinator& operator*() { return *coordinator_; }
  Coordinator* operator->() { return &*coordinator_; }

  // Carries effects out until there are none.
  void Settle() {
    for (auto effects = coordinator_->TakeEffects(); !effects.empty();
         effects = coordinator_->TakeEffects()) {
      for (RunEffect& effect : effects) {
        if (auto* send = std::get_if<SendControl>(&effect)) Answer(*send);
        if (auto* persist = std::get_if<Persist>(&effect)) Note(persist->record);
        if (auto* state = std::get_if<StateCollected>(&effect)) {
          if (state->use.checkpoint || state->use.final)
            log_ += " c" + std::to_string(state->step) + (state->use.final ? "!" : "");
          if (state->use.evaluation) Evaluate(state->step, state->generation);
        }
        const auto* line = std::get_if<LogLine>(&effect);
        if (line != nullptr && line->severity >= Severity::kWarning) warnings_ += line->text;
        if (auto* ended = std::get_if<RunEnded>(&effect)) {
          log_ += " end" + std::to_string(ended->step);
          ended_ = ended->status;
        }
      }
    }
  }

  void JoinAll(int workers) {
    for (int i = 0; i < workers; ++i)
      coordinator_->Joined(ConnectionId(i), Hello("w" + std::to_string(i)), i == 0);
    Settle();
  }

  // The states that were asked for arrive.
  void ReleaseSnapshots() {
    holds_snapshots_ = false;
    for (const SendControl& request : std::exchange(held_, {})) Answer(request);
    Settle();
  }

  // The evaluations that were held come to their end.
  void FinishEvaluations() {
    holds_evaluations_ = false;
    for (const auto& [step, generation] : std::exchange(held_evaluations_, {}))
      Evaluate(step, generation);
    Settle();
  }

  const std::string& log() const { return log_; }
  const absl::Status& ended() const { return ended_; }
  std::string refused_;
  bool holds_snapshots_ = false;
  bool holds_evaluations_ = false;
  absl::StatusOr<EvaluationFigures> figures_ = EvaluationFigures{0.5, 1.5};
  int64_t dies_at_ = -1;  // the evaluation of this step
  bool stop_at_first_barrier_ = false;
  bool stops_evaluating_ = false;
  int64_t fail_at_ = -1;
  int64_t change_at_ = -1;
  TrainingRules rules_;
  int64_t leaves_after_state_ = -1;  // connection
  int profile_ranges_off_ = 0;
  static ProfileReport Times(size_t ranges) {
    ProfileReport report;
    report.layer_seconds.assign(ranges, 0.001);
    report.processor_share = 0.5;
    return report;
  }
  std::optional<ProfileFailed> fails_profile_;
  std::string warnings_;
  std::vector<int64_t> released_;  // connections
  ScriptedPlanner planner_;

 private:
  static inline const absl::Status kDied = absl::UnavailableError("killed");
  // What passes before a stage's report of a barrier, and before that of an evaluation.
  static constexpr int64_t kMessageNs = 1'000'000;
  static constexpr int64_t kEvaluationNs = 1'000'000'000;

  void Evaluate(int64_t step, Generation generation) {
    if (holds_evaluations_) return held_evaluations_.push_back({step, generation});
    if (step == dies_at_) return coordinator_->Evaluated(step, generation, kDied);
    coordinator_->Evaluated(step, generation, figures_);
  }

  ModelState LayersOf(const std::vector<LayerRange>& ranges) const {
    ModelState state;
    for (const LayerRange& range : ranges)
      Merge(Slice(state_, range.first_layer, range.last_layer), state);
    return state;
  }

  void Note(const JournalRecord& record) {
    if (std::holds_alternative<PlanDecided>(record)) log_ += " plan";
    if (const auto* barrier = std::get_if<BarrierPassed>(&record))
      log_ += " b" + std::to_string(barrier->step);
    if (const auto* e = std::get_if<EvaluationRecorded>(&record))
      log_ += " e" + std::to_string(e->step);
    if (const auto* changed = std::get_if<TrainingChanged>(&record))
      log_ += " change" + std::to_string(changed->change.from_step);
    if (const auto* lost = std::get_if<WorkerLost>(&record)) log_ += " lost-" + lost->name;
  }

  void Answer(const SendControl& send) {
    const ConnectionId id = send.connection;
    if (const auto* refused = std::get_if<Refused>(&send.message)) refused_ = refused->reason;
    if (const auto* profile = std::get_if<ProfileRequest>(&send.message)) {
      log_ += " p" + std::to_string(id.value());
      if (fails_profile_.has_value()) return coordinator_->Received(id, *fails_profile_);
      coordinator_->Received(id, Times(profile->ranges.size() + profile_ranges_off_));
    }
    if (const auto* prepare = std::get_if<PrepareStage>(&send.message)) {
      stages_[id.value()] = *prepare;
      ranges_[{id.value(), prepare->plan.generation}] = prepare->plan.stages[prepare->stage];
      coordinator_->Received(id, StagePrepared{prepare->plan.generation});
    }
    if (const auto* fetch = std::get_if<FetchLayers>(&send.message))
      coordinator_->Received(id, LayersFetched{fetch->generation, LayersOf(fetch->ranges)});
    if (const auto* commit = std::get_if<CommitPlan>(&send.message))
      coordinator_->Received(id, StageReady{commit->generation});
    if (std::holds_alternative<Release>(send.message)) released_.push_back(id.value());
    if (const auto* run = std::get_if<RunUntil>(&send.message)) {
      if (stop_at_first_barrier_) coordinator_->StopAtBarrier();
      if (change_at_ >= 0 && coordinator_->step() > 0)
        log_ += " g" + std::to_string(id.value()) + (run->changes.empty() ? "-" : "+");
      if (run->limit.value() == fail_at_) {
        coordinator_->Gone(id, absl::UnavailableError("killed"));
      } else {
        BarrierReached reached = {run->generation, run->limit};
        reached.arrived_ns = now_ns_ += kMessageNs;
        coordinator_->Received(id, reached);
      }
    }
    const auto* snapshot = std::get_if<SnapshotRequest>(&send.message);
    if (snapshot != nullptr && holds_snapshots_) {
      held_.push_back(send);
    } else if (snapshot != nullptr) {
      const StagePlan& stage = ranges_[{id.value(), snapshot->generation}];
      coordinator_->Received(id, Snapshot{snapshot->generation, snapshot->sequence,
                                          Slice(state_, stage.first_layer, stage.last_layer)});
      if (id.value() == leaves_after_state_)
        coordinator_->Gone(id, absl::UnavailableError("killed"));
    }
    const auto* evaluate = std::get_if<EvaluateRequest>(&send.message);
    if (evaluate != nullptr && stops_evaluating_) return coordinator_->StopAtBarrier();
    if (evaluate != nullptr && id.value() + 1 == static_cast<int64_t>(stages_.size())) {
      EXPECT_EQ(evaluate->micro_batches, 3);
      EvaluationDone done = {evaluate->generation, evaluate->first, 5.0, 20, 25};
      done.arrived_ns = now_ns_ += kEvaluationNs;
      coordinator_->Received(id, done);
    }
  }

  int64_t now_ns_ = 0;
  size_t model_ = 0;
  std::vector<SendControl> held_;
  std::vector<std::pair<int64_t, Generation>> held_evaluations_;
  ModelState state_;
  std::map<int64_t, PrepareStage> stages_;
  std::map<std::pair<int64_t, Generation>, StagePlan> ranges_;  // by connection
  std::optional<Coordinator> coordinator_;
  std::string log_;
  absl::Status ended_ = absl::UnknownError("still running");
};

TEST(Coordinator, RunsThroughBarriersEvaluationsAndCheckpoints) {
  Cluster cluster(3);
  cluster.JoinAll(3);
  EXPECT_EQ(cluster.log(),
            " plan b40 c40 b80 c80 b100 e100 c100 b120 c120 b160 c160 b200 e200 c200 b240 c240 "
            "b250 e250 c250! end250");
  EXPECT_TRUE(cluster.ended().ok()) << cluster.ended();
}

// Where each barrier has an evaluation through the pipeline, no stretch begins at a stage's report.
TEST(Coordinator, BarriersByLossesAreMeasuredBehindEvaluations) {
  Cluster cluster(2, 500, false, false, {}, "auto", Evaluation::kThroughThePipeline, true, 0,
                  /*barrier_every=*/100);
  cluster.rules_.Add(std::string(kLossesRule), std::make_unique<LossInterval>(100));
  cluster.JoinAll(2);
  EXPECT_THAT(cluster.log(), testing::StartsWith(" plan b100 e100 b200 e200 change200 b300 e300"));
  EXPECT_TRUE(cluster.ended().ok()) << cluster.ended();
}

// Where a state takes longer to send than the way to the next barrier, stages keep one copy, not
// many.
TEST(Coordinator, TrainsOnWhileAStateIsSentButNotBeyondTheNextBarrier) {
  Cluster cluster(2, 200);
  cluster.holds_snapshots_ = true;
  cluster.JoinAll(2);
  EXPECT_EQ(cluster.log(), " plan b40 b80");
  cluster.ReleaseSnapshots();
  EXPECT_EQ(cluster.log(),
            " plan b40 b80 c40 c80 b100 e100 c100 b120 c120 b160 c160 b200 e200 c200! end200");

  Cluster stopped(2, 200);
  stopped.holds_snapshots_ = true;
  stopped.JoinAll(2);
  stopped->StopAtBarrier();
  stopped.ReleaseSnapshots();
  EXPECT_EQ(stopped.log(), " plan b40 b80 c40 c80! end80");
}

BarrierDecision WithoutDevice1At40(const BarrierReport& report) {
  if (report.step != 40) return KeepPlan{};
  Plan plan = report.plan;
  plan.stages = {{{Seat{DeviceId(0)}}, 0, 1, 2}, {{Seat{DeviceId(2)}}, 2, 5, 1}};
  plan.links.pop_back();
  return ChangePlan{plan, "because"};
}

// Streams bring a state before the layers that are fetched behind it. Collections do not count on
// that: their parts are those of devices, whatever stages these have by then.
TEST(Coordinator, StatesOfABarrierCountAfterAMove) {
  Cluster cluster(3, 120);
  cluster.holds_snapshots_ = true;
  cluster.planner_.at_barrier = WithoutDevice1At40;
  cluster.JoinAll(3);
  EXPECT_EQ(cluster.log(), " plan b40 plan b80");
  cluster.ReleaseSnapshots();
  EXPECT_THAT(cluster.log(), testing::StartsWith(" plan b40 plan b80 c40 c80 "));
  EXPECT_TRUE(cluster.ended().ok()) << cluster.ended();
}

// Its part never comes: the run must not stand for it, though it has no stage any more.
TEST(Coordinator, WhoGoesWithItsPartOfAStateIsLost) {
  Cluster cluster(3, 120);
  cluster.holds_snapshots_ = true;
  cluster.planner_.at_barrier = [](const BarrierReport& report) {
    return report.plan.stages.size() == 3 ? WithoutDevice1At40(report) : KeepPlan{};
  };
  cluster.JoinAll(3);
  ASSERT_EQ(cluster.log(), " plan b40 plan b80");
  ASSERT_EQ(cluster->stages().size(), 2u);
  cluster->Gone(ConnectionId(1), absl::UnavailableError("killed"));
  cluster.ReleaseSnapshots();
  EXPECT_THAT(cluster.log(), HasSubstr(" b80 lost-w1 plan b40 c40 b80 c80 "));
  EXPECT_TRUE(cluster.ended().ok()) << cluster.ended() << cluster.log();
}

// As `eval` of a check-point: there is no barrier to wait for.
TEST(Coordinator, ARunWithoutAStepStopsAtOnce) {
  Cluster cluster(2, 0);
  cluster.stops_evaluating_ = true;
  cluster.JoinAll(2);
  EXPECT_EQ(cluster.ended().code(), absl::StatusCode::kCancelled) << cluster.ended();
}

// Nothing of a state that everybody can draw crosses a network.
TEST(Coordinator, TheFirstStateIsDrawnWhereItIsTrained) {
  CoordinatorOptions options;
  options.stage.model = MakeModel("lenet").value();
  options.stage.training.dataset_samples = options.stage.training.batch_size = 10;
  options.roster = {.local_workers = 1, .recipe = "fp32"};
  options.barriers.stop_step = 1;
  ScriptedPlanner planner;
  planner.first_plan = [](const std::vector<DeviceFacts>&) {
    Plan plan;
    plan.stages.push_back({{Seat{DeviceId(0)}}, 0, 5, 1});
    return plan;
  };
  options.planner = &planner;
  for (const bool is_drawn : {true, false}) {
    if (!is_drawn) options.initial_state = InitialState(options.stage.model, 1).value();
    Coordinator coordinator = Coordinator::Create(options).value();
    coordinator.Joined(ConnectionId(0), SampleHello("w0"), true);
    int prepared = 0;
    for (const RunEffect& effect : coordinator.TakeEffects()) {
      const auto* send = std::get_if<SendControl>(&effect);
      const auto* stage = send != nullptr ? std::get_if<PrepareStage>(&send->message) : nullptr;
      if (stage == nullptr) continue;
      ++prepared;
      EXPECT_EQ(stage->draws_state, is_drawn);
      EXPECT_EQ(stage->state.layers.empty(), is_drawn);
    }
    EXPECT_EQ(prepared, 1);
  }
}

TEST(Coordinator, EvaluatesBesideTheTraining) {
  Cluster cluster(3, 250, Evaluation::kBeside);
  cluster.JoinAll(3);
  EXPECT_EQ(cluster.log(),
            " plan b40 c40 b80 c80 b100 c100 b120 e100 c120 b160 c160 b200 c200 b240 e200 c240 "
            "b250 c250! e250 end250");
  EXPECT_TRUE(cluster.ended().ok()) << cluster.ended();
}

// Each evaluation that is under way holds a state of the whole model.
TEST(Coordinator, WaitsForTheOldestOfThreeEvaluations) {
  Cluster cluster(2, 400, Evaluation::kBeside);
  cluster.holds_evaluations_ = true;
  cluster.JoinAll(2);
  EXPECT_THAT(cluster.log(), testing::EndsWith(" b280 c280 b300"));
  EXPECT_THAT(cluster.log(), Not(HasSubstr(" e")));
  EXPECT_EQ(PhaseOf(*cluster, /*stages_evaluate=*/false, /*is_paused=*/false),
            RunPhase::kEvaluating);
  EXPECT_EQ(PhaseOf(*cluster, /*stages_evaluate=*/false, /*is_paused=*/true), RunPhase::kPaused);
  cluster.FinishEvaluations();
  EXPECT_THAT(cluster.log(), testing::EndsWith(" b400 c400! e400 end400"));
  EXPECT_THAT(cluster.log(), HasSubstr(" e100 e200"));
}

// Whether the evaluation is there before the next barrier or long after it.
TEST(Coordinator, ARunThatLearnsNoMoreEndsAtTheBarrierBehindTheEvaluation) {
  Cluster quick(2, 1000, Evaluation::kBeside, /*early_stop=*/1);
  quick.JoinAll(2);
  EXPECT_THAT(quick.log(), testing::EndsWith(" b200 c200 b240 e200 c240! end240"));
  EXPECT_TRUE(quick.ended().ok()) << quick.ended();

  Cluster slow(2, 1000, Evaluation::kBeside, /*early_stop=*/1);
  slow.holds_evaluations_ = true;
  slow.JoinAll(2);
  EXPECT_THAT(slow.log(), testing::EndsWith(" b240")) << "no first evaluation ends a run";
  slow.FinishEvaluations();
  EXPECT_THAT(slow.log(), testing::EndsWith(" b240 e100 e200 c240! end240"));

  // Who leaves meanwhile does not wait for it, and the run ends where it would have.
  Cluster left(2, 1000, Evaluation::kBeside, /*early_stop=*/1);
  left.holds_evaluations_ = true;
  left.JoinAll(2);
  left.planner_.for_survivors = [](const BarrierReport& report) -> absl::StatusOr<Plan> {
    Plan plan = report.plan;
    plan.stages = {{{Seat{DeviceId(0)}}, 0, 5, 1}};
    plan.links.clear();
    return plan;
  };
  left->Received(ConnectionId(1), Leaving{});
  left.Settle();
  EXPECT_THAT(left.log(), testing::EndsWith(" b240 plan"));
  EXPECT_EQ(left.released_, std::vector<int64_t>{1});
  EXPECT_EQ(left->stages().size(), 1u);
  left.FinishEvaluations();
  EXPECT_THAT(left.log(), testing::EndsWith(" b240 plan e100 e200 c240! end240"));
  EXPECT_TRUE(slow.ended().ok()) << slow.ended();

  // Nor does who leaves while the layers of another one move.
  Cluster two_left(3, 1000, Evaluation::kBeside, /*early_stop=*/1);
  two_left.holds_evaluations_ = true;
  two_left.JoinAll(3);
  two_left.planner_.for_survivors = [](const BarrierReport& report) -> absl::StatusOr<Plan> {
    Plan plan = report.plan;
    plan.stages.pop_back();
    plan.links.pop_back();
    plan.stages.back().last_layer = 5;
    return plan;
  };
  two_left->Received(ConnectionId(2), Leaving{});
  two_left->Received(ConnectionId(1), Leaving{});
  two_left.Settle();
  EXPECT_THAT(two_left.log(), testing::EndsWith(" b240 plan plan"));
  EXPECT_EQ(two_left.released_, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(two_left->stages().size(), 1u);
  two_left.FinishEvaluations();
  EXPECT_THAT(two_left.log(), testing::EndsWith(" b240 plan plan e100 e200 c240! end240"));

  // An order to stop waits for no evaluation to ask for the state.
  Cluster stopped(2, 1000, Evaluation::kBeside, /*early_stop=*/1);
  stopped.holds_evaluations_ = true;
  stopped.JoinAll(2);
  stopped->StopAtBarrier();
  stopped.Settle();
  EXPECT_THAT(stopped.log(), testing::EndsWith(" b240 c240!"));
  stopped.FinishEvaluations();
  EXPECT_THAT(stopped.log(), HasSubstr(" end240"));

  // Of three in a row, two are not yet there.
  Cluster patient(2, 1000, Evaluation::kBeside, /*early_stop=*/2);
  patient.holds_evaluations_ = true;
  patient.JoinAll(2);
  EXPECT_THAT(patient.log(), testing::EndsWith(" b280 c280 b300"));
}

TEST(Coordinator, AnEvaluationThatDiesIsMadeAtTheNextBarrier) {
  Cluster cluster(2, 250, Evaluation::kBeside);
  cluster.dies_at_ = 100;
  cluster.JoinAll(2);
  EXPECT_EQ(cluster.log(),
            " plan b40 c40 b80 c80 b100 c100 b120 c120 b160 c160 b200 e160 c200 b240 e200 c240 "
            "b250 c250! e250 end250")
      << "the stages were on their way to 120 when it died";
  EXPECT_THAT(cluster.warnings_, HasSubstr("step 100: could not be evaluated"));
}

TEST(Coordinator, EvaluatesThroughThePipelineWhereItCannotBeside) {
  Cluster cluster(2, 250, Evaluation::kBeside);
  cluster.figures_ = absl::UnavailableError("no memory");
  cluster.JoinAll(2);
  EXPECT_THAT(cluster.log(), HasSubstr(" b160 c160 b200 c200 b240 e240 c240"));
  EXPECT_THAT(cluster.log(), testing::EndsWith(" b250 e250 c250! end250"));
  EXPECT_THAT(cluster.warnings_, HasSubstr("step 100: could not be evaluated"));
  EXPECT_THAT(cluster.warnings_, HasSubstr("no memory"));

  Cluster late(2, 100, Evaluation::kBeside);
  late.figures_ = absl::UnavailableError("no memory");
  late.JoinAll(2);
  EXPECT_EQ(late.log(), " plan b40 c40 b80 c80 b100 c100! e100 end100");
  EXPECT_TRUE(late.ended().ok()) << late.ended();
}

TEST(Coordinator, StopsAtTheNextBarrierWithACheckpoint) {
  Cluster cluster(2);
  cluster.stop_at_first_barrier_ = true;
  cluster.JoinAll(2);
  EXPECT_EQ(cluster.log(), " plan b40 c40! end40");
  EXPECT_TRUE(cluster.ended().ok());
}

// coordinator_recovery_test.cc has what follows where the run recovers.
TEST(Coordinator, ALostWorkerEndsARunThatCannotRecover) {
  Cluster cluster(2, 250, true, false, {}, "auto", Evaluation::kThroughThePipeline, false);
  cluster.fail_at_ = 80;
  cluster.JoinAll(2);
  EXPECT_THAT(cluster.log(), HasSubstr(" b40 c40 lost-w0 end40"));
  EXPECT_THAT(std::string(cluster.ended().message()),
              HasSubstr("worker w0 was lost after step 40 (killed)"));
}

// It will not get better by waiting.
TEST(Coordinator, AWorkerOfOurOwnThatDoesNotFitEndsTheRun) {
  WorkerHello bare = Cluster::Hello("bare");
  bare.codecs.clear();
  Cluster cluster(2);
  cluster->Joined(ConnectionId(1), bare, false);
  cluster.Settle();
  EXPECT_THAT(cluster.refused_, HasSubstr("codec identity"));
  EXPECT_TRUE(cluster->joining());
  cluster->Joined(ConnectionId(2), bare, true);
  cluster.Settle();
  EXPECT_EQ(cluster.ended().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Coordinator, AStageThatDoesNotFitItsWorkerIsTheUsersToChange) {
  for (bool unfit : {false, true}) {
    Cluster cluster(2, 40, true, true);
    cluster.fails_profile_ = ProfileFailed{"no such thing", unfit};
    cluster.JoinAll(2);
    EXPECT_EQ(cluster.ended().code(),
              unfit ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(cluster.ended().message()), HasSubstr("worker w0: no such thing"));
  }
}

// A run of integers is the same on all classes.
TEST(Coordinator, SeveralNumericsClassesMatterToFloatsOnly) {
  for (const NumberFormat& format : {NumberFormat(), RecipeFamilies()[1].format}) {
    Cluster cluster(2, 40, true, false, format);
    WorkerHello other = Cluster::Hello("w1");
    other.numerics_class = "cpu";
    cluster->Joined(ConnectionId(0), Cluster::Hello("w0"), true);
    cluster->Joined(ConnectionId(1), other, false);
    cluster.Settle();
    EXPECT_EQ(cluster.warnings_.empty(), format.is_exact()) << cluster.warnings_;
    EXPECT_TRUE(cluster.ended().ok()) << cluster.ended();
  }
}

TEST(Coordinator, AWorkerThatLeavesBeforeTheRunIsReplaced) {
  Cluster cluster(2, 40);
  cluster->Joined(ConnectionId(9), Cluster::Hello("gone"), false);
  cluster->Gone(ConnectionId(9), absl::UnavailableError("killed"));
  cluster.JoinAll(2);
  EXPECT_EQ(cluster.log(), " plan b40 e40 c40! end40");
}

TEST(Coordinator, WaitsOnlySoLong) {
  Cluster cluster(2);
  cluster->Joined(ConnectionId(0), Cluster::Hello("w0"), true);
  cluster->JoinTimedOut(60);
  cluster.Settle();
  EXPECT_THAT(std::string(cluster.ended().message()),
              HasSubstr("after 60 s 1 of 2 workers is there (w0)"));
}

// Decided once, journalled, then granted to every stage with the training behind the barrier.
TEST(Coordinator, AChangeOfTheTrainingIsJournalledAndGrantedToAllStages) {
  Cluster cluster(2, 120);
  cluster.change_at_ = 80;
  cluster.JoinAll(2);
  EXPECT_EQ(cluster.log(),
            " plan b40 g0- g1- c40 b80 change80 g0+ g1+ c80 b100 e100 g0- g1- c100 b120 e120 c120! "
            "end120");
  EXPECT_THAT(cluster->ChangesAt(200), ::testing::ElementsAre(ChangeOfGradientBits(80, {1, 1})));
}

TEST(Coordinator, ProfilesLayersOfAllDevicesAtOnce) {
  Cluster cluster(3, 40, true, true);
  cluster.JoinAll(3);
  EXPECT_EQ(cluster.log(), " p0 p1 p2 p0 p1 p2 plan b40 e40 c40! end40");

  Cluster wrong(2, 40, true, true);
  wrong.profile_ranges_off_ = -1;
  wrong.JoinAll(2);
  EXPECT_EQ(wrong.log(), " p0 p1 end0");
  EXPECT_THAT(std::string(wrong.ended().message()),
              HasSubstr("does not have the ranges asked for"));
}

// It has handed its state over: what the run is for is there.
TEST(Coordinator, AWorkerThatLeavesAfterItsLastStateIsNotMissed) {
  Cluster cluster(2, 40);
  cluster.leaves_after_state_ = 0;
  cluster.JoinAll(2);
  EXPECT_EQ(cluster.log(), " plan b40 e40 lost-w0 c40! end40");
  EXPECT_TRUE(cluster.ended().ok()) << cluster.ended();
}

}  // namespace
}  // namespace runnel::coordinator_test
