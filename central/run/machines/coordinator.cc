#include "central/run/machines/coordinator.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/precision.h"
#include "proto/base/training/recipe_family.h"

namespace runnel {
namespace {

// With the bits that the run begins with, which say how long products take; what later levels take is
// seen while they train.
std::string MeasuredRecipe(const CoordinatorOptions& options, const Batching& batching) {
  const TrainingSettings& training = options.stage.training;
  const absl::StatusOr<RecipeName> recipe = ParseRecipeName(options.stage.recipe);
  const absl::StatusOr<PrecisionSetting> setting = ParsePrecision(training.precision);
  if (!recipe.ok() || !setting.ok()) return options.stage.recipe;
  if (setting->kind == PrecisionSetting::Kind::kCycle)
    return RecipeAtLevel(*recipe, LastPrecision(*setting, options.changes));
  const MicroBatch first = batching.Locate(batching.FirstSequence(options.first_step));
  return RecipeAtLevel(
      *recipe, PrecisionAt(*setting, options.changes, training.run_steps, first.epoch, first.step));
}

}  // namespace

absl::StatusOr<Coordinator> Coordinator::Create(CoordinatorOptions options) {
  RUNNEL_ASSIGN_OR_RETURN(Batching batching, MakeBatching(options.stage.training));
  ProfileRequest& request = options.measurement.request;
  request.model = options.stage.model;
  request.recipe = MeasuredRecipe(options, batching);
  request.backend = options.stage.backend;
  request.micro_batch_size = batching.MicroBatchSizes().front();
  options.measurement.pipelined = options.stage.training.micro_batches == 1;
  return Coordinator(std::move(options), batching);
}

Coordinator::Coordinator(CoordinatorOptions options, const Batching& batching)
    : options_(std::move(options)),
      roster_(options_.roster),
      gathering_(options_.join_patience_ns),
      measuring_(options_.measurement, options_.planner),
      move_(options_.first_generation, options_.link_token),
      barrier_(options_.barriers, batching, options_.first_step),
      states_({options_.stage.model, options_.format, batching},
              {options_.evaluates_beside, options_.evaluation_pace, options_.first_step}),
      replication_({options_.recovers ? options_.replicate_every : -1, options_.barriers.rule.every,
                    options_.layer_bytes}),
      recovery_({options_.recovers, options_.layer_bytes, options_.replicate_every >= 0},
                options_.first_step, std::exchange(options_.initial_state, {})),
      dry_runs_(options_.dry_runs, batching) {
  if (!dry_runs_.Restore(options_.dry_runs_state).ok() || dry_runs_.last() == nullptr) return;
  options_.planner->SetNoise(*dry_runs_.last());
}

RunEffects Coordinator::TakeEffects() { return std::exchange(effects_, {}); }

// ---- members

void Coordinator::Joined(ConnectionId connection, const WorkerHello& hello, bool local) {
  if (const auto restarted = detector_.Restarted(roster_, hello); restarted.has_value())
    Lose(*restarted);
  const bool is_gathered = roster_.complete() && !ended();
  if (local && is_gathered && (recovery_.waiting() || !has_plan())) {
    const absl::StatusOr<std::optional<int>> seat = roster_.Return(connection, hello, effects_);
    if (!seat.ok()) return End(seat.status(), false);
    if (seat->has_value() && recovery_.Return(hello.name)) return PlanRecovery();
    if (seat->has_value()) return MeasureNewcomer(**seat);
  }
  if (!local && is_gathered && (has_plan() ? !options_.plan_only : roster_.has_free_seat()))
    return Enter(connection, hello);
  const absl::StatusOr<bool> complete = roster_.Join(connection, hello, local, effects_);
  if (!complete.ok()) return End(complete.status(), false);
  if (*complete && !ended()) Begin();
}

void Coordinator::EndedBeforeJoining(const std::string& name, const absl::Status& status) {
  if (ended() || !joining()) return;
  if (!recovery_.waiting()) {
    if (roster_.IsPresent(name)) return;  // it has joined since: the end of its stream tells
    if (!absl::IsUnavailable(status)) return End(status, false);
    if (absl::Status again = gathering_.StartAgain(name, status, effects_); !again.ok())
      End(again, false);
    return;
  }
  if (name != recovery_.awaited()) return;
  if (absl::Status again = recovery_.EndBeforeJoining(effects_); !again.ok()) End(again, false);
}

void Coordinator::JoinTimedOut(int64_t waited_s) {
  if (ended() || roster_.complete()) return;
  if (!roster_.has_least()) return End(roster_.TimeoutError(waited_s), false);
  roster_.Complete(effects_);
  Begin();
}

void Coordinator::Received(ConnectionId connection, const WorkerMessage& message) {
  const std::optional<int> device = roster_.DeviceOf(connection);
  if (!device.has_value() || ended()) return;
  // A worker wrongly declared lost has no part in the run any more.
  if (roster_.lost()[static_cast<size_t>(*device)]) return;
  if (!std::holds_alternative<Heartbeat>(message) && !std::holds_alternative<Telemetry>(message))
    standstill_.Move();
  std::visit([this, device](const auto& one) { Handle(*device, one); }, message);
  barrier_.EndEvent();
}

// ---- from barrier to barrier

void Coordinator::Train() {
  // Asked for since the stages stood. An evaluation of this very step ends the run at the barrier
  // behind it, however long this one takes.
  if (course_.is_to_stop() || options_.early_stop.WasDueBefore(step())) return CollectFinal();
  if (course_.is_to_pause()) {
    effects_.push_back(LogLine{Severity::kInfo, absl::StrCat("paused at step ", step())});
    course_.Stand(StandsFor::kOperator);
    return;
  }
  const int64_t now_ns = barrier_.reached_ns();
  replication_.SetBarrierSteps(
      BarrierRuleUpTo(options_.barriers.rule, options_.changes, step()).every);
  if (IsRegularBarrier() && replication_.Wants(step(), recovery_.central_step(), active_, now_ns)) {
    if (const auto holders = replication_.HoldersIn(active_, Facts(), roster_, effects_)) {
      replication_.Begin(step(), barrier_.reached_sequence(), active_, *holders, now_ns, effects_);
    }
  }
  barrier_.Grant(active_, options_.changes, effects_);
}

void Coordinator::Handle(int device, const BarrierReached& reached) {
  const std::optional<size_t> stage = active_.plan.StageOf(device);
  if (stage.has_value() && barrier_.AddReached(*stage, reached, active_))
    ArriveAtBarrier(barrier_.step());
}

void Coordinator::ArriveAtBarrier(int64_t step) {
  recovery_.ReachBarrier();
  barrier_.Arrive(step, effects_);
  EvaluationsBeside& beside = states_.evaluations();
  if (!beside.is_on() && (barrier_.EvaluatesAt(step) || beside.is_due())) {
    beside.BeginThroughPipeline();
    return barrier_.BeginEvaluation(active_, effects_);
  }
  GoOnAtBarrier();
}

void Coordinator::Handle(int, const EvaluationDone& done) {
  const absl::StatusOr<bool> recorded = barrier_.AddEvaluation(done, active_, effects_);
  if (!recorded.ok()) return End(recorded.status(), false);
  if (!*recorded) return;
  const double labels = static_cast<double>(done.samples * options_.barriers.labels_per_sample);
  options_.early_stop.Add(step(), {.accuracy = static_cast<double>(done.correct) / labels,
                                   .loss = done.loss_sum / static_cast<double>(done.samples)});
  if (course_.has_last()) return EndIfComplete();
  GoOnAtBarrier();
}

void Coordinator::Evaluated(int64_t at, Generation generation,
                            const absl::StatusOr<EvaluationFigures>& figures) {
  using Answer = EvaluationsBeside::Answer;
  if (ended()) return;
  const Answer answer = states_.evaluations().Add(at, generation, figures, effects_);
  if (answer == Answer::kIgnored) return;
  if (answer == Answer::kRecorded) options_.early_stop.Add(at, *figures);
  if (course_.has_last()) {
    if (answer == Answer::kFailed && at == step())
      return barrier_.BeginEvaluation(active_, effects_);
    return EndIfComplete();
  }
  if (course_.Stands(StandsFor::kStates)) CollectAtBarrier();
}

// Work at a barrier after the evaluation, in order.
void Coordinator::GoOnAtBarrier() {
  const bool is_last = barrier_.IsLast(step()) || is_to_end();
  if (!is_last && IsRegularBarrier() &&
      dry_runs_.Begin(Report(), barrier_.standing_ns(), active_, effects_))
    return;
  // First, so that a check-point of this barrier has it: the run that goes on from there trains as
  // this one does.
  AskTrainingRules();
  if (is_last) return CollectFinal();
  CollectAtBarrier();
}

void Coordinator::Handle(int device, const DryRunDone& done) {
  const std::optional<size_t> stage = active_.plan.StageOf(device);
  if (!stage.has_value()) return;
  const std::optional<NoiseMeasured> noise = dry_runs_.Add(*stage, done, active_);
  if (!noise.has_value()) return;
  effects_.push_back(
      LogLine{Severity::kInfo, absl::StrCat("step ", step(), ": ", ToString(*noise))});
  if (dry_runs_.last() != nullptr && dry_runs_.last()->step == step()) {
    effects_.push_back(Persist{*noise});
    options_.planner->SetNoise(*noise);
  }
  GoOnAtBarrier();
}

bool Coordinator::EvaluatesBesideHere() {
  EvaluationsBeside& beside = states_.evaluations();
  if (beside.is_due()) return beside.is_on();
  return barrier_.EvaluatesAt(step()) &&
         beside.IsWorth(Report(), options_.planner->predicted_samples_per_s(), effects_);
}

void Coordinator::CollectAtBarrier() {
  if (is_to_end()) return CollectFinal();  // while the state of the barrier before was awaited
  const bool is_barrier = IsRegularBarrier();
  StateUse use = {.checkpoint = options_.collect_at_barriers && is_barrier,
                  .evaluation = EvaluatesBesideHere()};
  // Beside the training, if nothing else is on its way: nobody waits for it.
  use.recovery = is_barrier && !states_.collection().under_way() &&
                 recovery_.WantsState(active_, Facts(), barrier_.reached_ns());
  // Where links are too slow for a state at each barrier, stages must not pile up copies; where
  // evaluating takes longer than training, central must not.
  const bool waits = (use.checkpoint || use.evaluation) && states_.collection().is_waited_for();
  // A run ends at the barrier behind the evaluation that ends it, however fast that is: its weights
  // must not depend on how busy central is.
  const int64_t awaited = states_.evaluations().under_way();
  const bool may_end = awaited > 0 && options_.early_stop.MayBeDueAfter(awaited);
  const bool stands = waits || may_end || (use.evaluation && states_.evaluations().is_full());
  const bool has_moved = course_.Stands(StandsFor::kLeaving);
  course_.Stand(stands ? StandsFor::kStates : StandsFor::kNothing);
  if (stands && !has_moved) MoveFromLeavingMeanwhile();
  if (stands) return;
  if (use.any()) states_.Request(step(), use, active_, effects_);
  if (use.recovery || use.checkpoint) recovery_.BeginCollecting(barrier_.reached_ns());
  if (!is_barrier) return Train();
  AskPlanner();
}

BarrierReport Coordinator::Report() const {
  RunPace pace = barrier_.pace();
  pace.barrier_every = BarrierRuleUpTo(options_.barriers.rule, options_.changes, step()).every;
  return {step(),
          active_.plan,
          active_.first_sequence,
          active_.stages,
          Facts(),
          Times(),
          step() % pace.barrier_every == 0,
          pace,
          &options_.changes,
          options_.barriers.rule.epochs * options_.barriers.rule.steps_per_epoch};
}

std::vector<TrainingChange> Coordinator::ChangesAt(int64_t step) const {
  std::vector<TrainingChange> changes = options_.changes;
  DropChangesAfter(step, changes);
  return changes;
}

RuleStates Coordinator::RuleStatesAt(int64_t step) const {
  RuleStates states = options_.rules == nullptr ? RuleStates() : options_.rules->StatesAt(step);
  if (options_.early_stop.is_on())
    states[std::string(EarlyStop::kName)] = options_.early_stop.StateAt(step);
  if (std::string noise = dry_runs_.StateAt(step); !noise.empty())
    states[std::string(DryRuns::kName)] = std::move(noise);
  return states;
}

void Coordinator::AskTrainingRules() {
  if (options_.rules == nullptr || !IsRegularBarrier()) return;
  // A run that is resumed at its end, or that stopped here before, has asked already.
  if (step() == options_.first_step) return;
  for (const ChangeTraining& proposed : options_.rules->AtBarrier(Report())) {
    effects_.push_back(Persist{TrainingChanged{proposed.change, proposed.why}});
    effects_.push_back(LogLine{
        Severity::kInfo,
        absl::StrCat("step ", step(), ": ", ToString(proposed.change), ": ", proposed.why)});
    AddTrainingChange(proposed.change, options_.changes);
    barrier_.Propose(proposed.change);
  }
}

void Coordinator::AskPlanner() {
  if (MoveFromLeaving()) return;
  BarrierDecision decision = options_.planner->AtBarrier(Report());
  if (std::string remark = options_.planner->TakeRemark(); !remark.empty())
    effects_.push_back(LogLine{Severity::kInfo, std::move(remark)});
  if (auto* change = std::get_if<ChangePlan>(&decision)) return ChangeTo(std::move(*change));
  auto* measure = std::get_if<MeasureDevices>(&decision);
  if (measure == nullptr || (measure->devices.empty() && measure->paths.empty())) return Train();
  const bool beside = measure->beside;
  measuring_.Order(*measure, step());
  if (!beside) {
    course_.Stand(StandsFor::kMeasuring);
    return Measure();
  }
  Measure();
  AskPlanner();
}

void Coordinator::Handle(int device, const Snapshot& snapshot) {
  absl::StatusOr<std::optional<StateCollected>> whole =
      states_.collection().AddPart(device, snapshot);
  if (!whole.ok()) return End(whole.status(), false);
  if (!whole->has_value()) return;
  const StateUse use = (*whole)->use;
  const bool is_used = use.checkpoint || use.evaluation || use.final;
  // Not the last one: nothing is trained after it.
  if ((use.recovery || use.checkpoint) && !use.final) {
    recovery_.Keep((*whole)->step, is_used ? (*whole)->state : std::move((*whole)->state),
                   snapshot.arrived_ns);
  }
  if (is_used) effects_.push_back(**std::move(whole));
  if (use.final) {
    course_.CollectedLast();
    return EndIfComplete();
  }
  if (course_.Stands(StandsFor::kStates)) return CollectAtBarrier();
  if (measuring_.waits()) Measure();
}

void Coordinator::Handle(int device, const Telemetry& telemetry) {
  const std::optional<size_t> stage = active_.plan.StageOf(device);
  if (!stage.has_value() || telemetry.generation != active_.plan.generation) return;
  active_.stages[*stage].telemetry = telemetry;
  if (*stage == 0) recovery_.AddTelemetry(telemetry, effects_);
}

// ---- the end

void Coordinator::CollectFinal() {
  if (options_.evaluate_only) return End(absl::OkStatus(), false);
  course_.CollectLast();
  const StateUse use = {.checkpoint = true,
                        .evaluation = states_.evaluations().is_on() && barrier_.EvaluatesAt(step()),
                        .final = true};
  states_.Request(step(), use, active_, effects_);
}

void Coordinator::EndIfComplete() {
  if (states_.evaluations().under_way() > 0 || barrier_.evaluating()) return;
  End(absl::OkStatus(), !barrier_.IsLast(step()) && !options_.early_stop.is_due());
}

void Coordinator::StopAtBarrier() {
  course_.OrderStop();
  if (gathering_.waits())
    return End(absl::CancelledError("stopped while it waited for workers"), true);
  // Before training there is nothing to bring to a barrier.
  if (!barrier_.begun()) return End(absl::CancelledError("stopped before training began"), true);
  const bool trains = !options_.evaluate_only && !barrier_.IsLast(options_.first_step);
  if (!trains) return End(absl::CancelledError("stopped before the evaluation was done"), true);
  if (course_.Stands(StandsFor::kOperator) || course_.Stands(StandsFor::kStates)) CollectFinal();
}

void Coordinator::Abort(const absl::Status& status) { End(status, false); }

void Coordinator::FeedFailed(const absl::Status& status) {
  End(absl::UnavailableError(absl::StrCat("the feed of samples failed: ", status.message())),
      false);
}

void Coordinator::EndFor(int device, const StageFailed& failed) {
  End(roster_.FailureOf(device, failed.reason, failed.unfit && !has_plan()), false);
}

void Coordinator::End(absl::Status status, bool stopped_by_user) {
  if (!course_.End()) return;
  roster_.ReleaseAll(effects_);
  effects_.push_back(RunEnded{std::move(status), step(), stopped_by_user});
}

}  // namespace runnel
