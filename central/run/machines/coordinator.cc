#include "central/run/machines/coordinator.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Evaluations under way beside the training: each holds a state of the whole model.
constexpr size_t kMostEvaluations = 2;

// What does not fit its worker is the user's to change.
absl::Status FailureOf(const std::string& worker, const std::string& reason, bool unfit) {
  std::string what = absl::StrCat("worker ", worker, ": ", reason);
  return unfit ? absl::InvalidArgumentError(what) : absl::AbortedError(what);
}

}  // namespace

absl::StatusOr<Coordinator> Coordinator::Create(CoordinatorOptions options) {
  RUNNEL_ASSIGN_OR_RETURN(Batching batching, MakeBatching(options.stage.training));
  ProfileRequest& request = options.measurement.request;
  request.model = options.stage.model;
  request.recipe = options.stage.recipe;
  request.backend = options.stage.backend;
  request.micro_batch_size = batching.MicroBatchSizes().front();
  options.evaluation_pace.micro_batch_size = request.micro_batch_size;
  options.measurement.pipelined = options.stage.training.micro_batches == 1;
  return Coordinator(std::move(options), batching);
}

Coordinator::Coordinator(CoordinatorOptions options, Batching batching)
    : options_(std::move(options)),
      batching_(batching),
      roster_(options_.roster),
      measurement_(options_.measurement, options_.planner),
      move_(options_.first_generation, options_.link_token),
      barrier_(options_.barriers, batching),
      pace_(options_.evaluation_pace, options_.first_step),
      collection_(options_.stage.model, options_.format, batching),
      replication_({options_.recovers ? options_.replicate_every : -1, options_.barriers.rule.every,
                    options_.layer_bytes}),
      recovery_({options_.recovers, options_.layer_bytes, options_.replicate_every >= 0},
                options_.first_step, std::exchange(options_.initial_state, {})),
      step_(options_.first_step) {}

RunEffects Coordinator::TakeEffects() { return std::exchange(effects_, {}); }

// ---- who is there

void Coordinator::Joined(ConnectionId connection, const WorkerHello& hello, bool local) {
  if (const auto restarted = detector_.Restarted(roster_, hello); restarted.has_value())
    Lose(*restarted);
  if (local && recovery_.waiting()) {
    const absl::StatusOr<std::optional<int>> seat = roster_.Return(connection, hello, effects_);
    if (!seat.ok()) return End(seat.status(), false);
    if (seat->has_value() && recovery_.Return()) return PlanRecovery();
  }
  if (!local && roster_.complete() && has_plan() && !ended() && !options_.plan_only)
    return Enter(connection, hello);
  const absl::StatusOr<bool> complete = roster_.Join(connection, hello, local, effects_);
  if (!complete.ok()) return End(complete.status(), false);
  if (*complete && !ended()) Begin();
}

void Coordinator::EndedBeforeJoining(const absl::Status& status) {
  if (ended() || !joining()) return;
  if (!recovery_.waiting()) return End(status, false);
  if (absl::Status again = recovery_.EndBeforeJoining(effects_); !again.ok()) End(again, false);
}

void Coordinator::JoinTimedOut(int64_t waited_s) {
  if (!ended() && !roster_.complete()) End(roster_.TimeoutError(waited_s), false);
}

void Coordinator::Begin() {
  // Integer recipes give the same bytes on all classes.
  if (!options_.format.is_exact()) roster_.WarnOfSeveralClasses(effects_);
  if (!options_.needs_profile) return MakeFirstPlan();
  std::vector<int> paths;
  const std::vector<DeviceFacts> facts = Facts();
  for (size_t i = 0; i < facts.size(); ++i) {
    const auto device = static_cast<int>(i);
    if (!facts[i].is_local && options_.planner->ProbesPath(facts, device)) paths.push_back(device);
  }
  link_probe_.Begin(std::move(paths), LinkProbe::Media::kFind, roster_, effects_);
  if (!link_probe_.under_way()) MeasureAll();
}

void Coordinator::GoOnProbed() {
  if (!has_plan()) return MeasureAll();
  MeasureNext();
}

void Coordinator::Handle(int device, const WayMeasured& measured) {
  if (!link_probe_.under_way()) return;
  link_probe_.AddReport(device, measured, roster_, effects_);
  if (!link_probe_.under_way()) GoOnProbed();
}

void Coordinator::Handle(int device, const ProbePiece& piece) {
  if (!link_probe_.under_way()) return;
  link_probe_.AddPiece(device, piece, roster_, effects_);
  if (!link_probe_.under_way()) GoOnProbed();
}

void Coordinator::MeasureAll() {
  std::vector<int> all(options_.profiles_first_only ? 1 : roster_.devices().size());
  std::iota(all.begin(), all.end(), 0);
  measurement_.Begin(std::move(all), step_, Generation(), roster_, effects_);
}

bool Coordinator::IsNeeded(int device) const {
  if (!has_plan() || recovery_.replacing()) return !move_.under_way() || move_.Uses(device);
  const std::optional<size_t> stage = active_.StageOf(device);
  return stage.has_value() &&
         (ending_ == Ending::kNotYet || barrier_.evaluating() || collection_.Awaits(*stage));
}

void Coordinator::Gone(ConnectionId connection, const absl::Status& status) {
  if (ended()) return;
  const std::optional<int> device = roster_.Leave(connection, effects_);
  if (!device.has_value()) return;
  replication_.Lose(*device);
  const std::string& name = roster_.name(*device);
  if (roster_.device(*device).released && !IsNeeded(*device)) {
    effects_.push_back(LogLine{Severity::kInfo, absl::StrCat("worker ", name, " has left")});
    return;
  }
  effects_.push_back(
      Persist{WorkerLost{step_, DeviceId(*device), name, std::string(status.message())}});
  // Before there is a plan nothing is lost but the start.
  if (!has_plan() && !move_.under_way() && !recovery_.waiting()) {
    return End(absl::UnavailableError(absl::StrCat("worker ", name,
                                                   " was lost before the first "
                                                   "plan (",
                                                   status.message(), ")")),
               false);
  }
  if (IsNeeded(*device)) return Recover(*device, status);
  if (!has_plan() || recovery_.replacing()) return;
  if (!move_.revocable()) return MeasureWithout(*device);
  move_.Abort(absl::StrCat("worker ", name, " was lost"), roster_, effects_);
  Train();
}

void Coordinator::MeasureWithout(int device) {
  if (link_probe_.under_way()) {
    link_probe_.Skip(device, roster_, effects_);
    if (!link_probe_.under_way()) GoOnProbed();
  } else if (measurement_.under_way()) {
    if (measurement_.SkipDevice(device, roster_, effects_) && !measurement_.under_way())
      GoOnMeasured();
  }
}

void Coordinator::Received(ConnectionId connection, const WorkerMessage& message) {
  const std::optional<int> device = roster_.DeviceOf(connection);
  if (!device.has_value() || ended()) return;
  // Whoever was taken for lost and is not has no part in the run any more.
  if (roster_.lost()[static_cast<size_t>(*device)]) return;
  if (!std::holds_alternative<Heartbeat>(message) && !std::holds_alternative<Telemetry>(message))
    standstill_.Move();
  std::visit([this, device](const auto& one) { Handle(*device, one); }, message);
}

// ---- what devices take

void Coordinator::Handle(int device, const ProfileReport& report) {
  const absl::StatusOr<bool> counts = measurement_.AddReport(device, report, roster_, effects_);
  if (!counts.ok()) return End(counts.status(), false);
  if (!*counts) return;
  roster_.SetMeasured(device, report.processor_share, report.costs);
  if (!measurement_.under_way()) GoOnMeasured();
}

void Coordinator::Handle(int device, const ProfileFailed& failed) {
  if (!measurement_.IsAbout(failed.generation)) return;
  if (!has_plan()) return End(FailureOf(roster_.name(device), failed.reason, failed.unfit), false);
  // It has its stage, and what was known of it stays: no reason to end a run.
  if (!measurement_.SkipDevice(device, roster_, effects_)) return;
  effects_.push_back(LogLine{
      Severity::kWarning,
      absl::StrCat("step ", step_, ": worker ", roster_.name(device), " could not measure (",
                   failed.reason, "); plans go by what was known of it")});
  if (!measurement_.under_way()) GoOnMeasured();
}

void Coordinator::GoOnMeasured() {
  if (!measurement_.kept().empty()) {
    const auto name = [this](std::string* out, int device) {
      absl::StrAppend(out, roster_.name(device));
    };
    effects_.push_back(
        LogLine{Severity::kInfo, absl::StrCat("measured in an earlier run: ",
                                              absl::StrJoin(measurement_.kept(), ", ", name))});
  }
  if (!has_plan()) return MakeFirstPlan();
  if (stop_requested_) return CollectFinal();  // while a device measured
  AskPlanner();
}

// ---- how a plan comes to hold

std::vector<DeviceFacts> Coordinator::Facts() const {
  std::vector<DeviceFacts> facts;
  const std::vector<PathFigures>& paths = link_probe_.paths();
  int64_t locals = 0;
  for (size_t i = 0; i < roster_.devices().size(); ++i)
    locals += roster_.devices()[i].local && !roster_.lost()[i] ? 1 : 0;
  for (size_t i = 0; i < roster_.devices().size(); ++i) {
    const Device& device = roster_.devices()[i];
    // Local workers are on one host and have its memory together.
    const int64_t sharing = device.local ? std::max<int64_t>(locals, 1) : 1;
    facts.push_back({device.hello.name, device.processor_share, roster_.lost()[i] || device.leaving,
                     device.local, i < paths.size() ? paths[i] : PathFigures(), device.costs,
                     device.hello.memory_bytes / sharing});
  }
  return facts;
}

PlanDecided Coordinator::Decided(Plan plan, const std::vector<DeviceTimes>& times) const {
  PlanDecided decided{step_, std::move(plan), {}};
  for (size_t i = 0; i < roster_.devices().size(); ++i) {
    const Device& device = roster_.devices()[i];
    JournalDevice row{device.hello.name, device.hello.numerics_class};
    if (i < times.size()) {
      row.times = times[i];
      row.processor_share = device.processor_share;
      row.costs = device.costs;
    }
    decided.devices.push_back(std::move(row));
  }
  return decided;
}

PrepareStage Coordinator::StageMessage() const {
  PrepareStage message = options_.stage;
  message.first_sequence = batching_.FirstSequence(step_);
  message.changes = options_.changes;
  return message;
}

void Coordinator::MakeFirstPlan() {
  absl::StatusOr<Plan> plan = options_.planner->FirstPlan(Facts(), measurement_.times());
  if (!plan.ok()) return End(plan.status(), false);
  if (std::optional<LinksKnown> links = options_.planner->KnownLinks(); links.has_value())
    effects_.push_back(Persist{*std::move(links)});
  MoveOrder order;
  order.decided = Decided(*std::move(plan), measurement_.times());
  if (options_.plan_only) {
    order.decided.plan.generation = options_.first_generation;
    active_.plan = order.decided.plan;
    effects_.push_back(Persist{std::move(order.decided)});
    return End(absl::OkStatus(), false);
  }
  order.common = StageMessage();
  order.common.draws_state = recovery_.state().layers.empty();
  order.state = recovery_.state();
  const absl::Status begun = move_.Begin(std::move(order), active_, roster_, effects_);
  if (!begun.ok()) End(begun, false);
}

void Coordinator::ChangeTo(ChangePlan change) {
  const bool same =
      change.plan.stages == active_.plan.stages && change.plan.links == active_.plan.links;
  if (same) return Train();
  MoveOrder order;
  order.decided =
      Decided(std::move(change.plan), change.times.empty() ? measurement_.times() : change.times);
  order.why = std::move(change.why);
  order.common = StageMessage();
  const absl::Status begun = move_.Begin(std::move(order), active_, roster_, effects_);
  if (begun.ok()) return;
  effects_.push_back(
      LogLine{Severity::kWarning, absl::StrCat("the new plan is no plan: ", begun.message())});
  Train();
}

void Coordinator::Handle(int device, const LayersFetched& fetched) {
  move_.AddLayers(device, fetched, roster_, effects_);
}

void Coordinator::Handle(int device, const StagePrepared& prepared) {
  std::optional<ActivePlan> next = move_.AddPrepared(device, prepared, roster_, effects_);
  if (!next.has_value()) return;
  active_ = *std::move(next);
  ReleaseLeft();
  replication_.GiveUp();
  if (recovery_.replacing()) recovery_.Prepared(effects_);
}

void Coordinator::Handle(int device, const StageReady& ready) {
  if (!move_.AddReady(device, ready)) return;
  // A resumed run that has nothing left to train is evaluated and collected all the same.
  if (barrier_.IsLast(step_)) return ArriveAtBarrier(step_);
  CollectAgain();
  Train();
}

void Coordinator::Handle(int device, const StageFailed& failed) {
  const std::string& name = roster_.name(device);
  if (!has_plan() || recovery_.waiting() || recovery_.replacing()) {
    // What a survivor says of the stage that it has is no news.
    if (!move_.under_way() || failed.generation != move_.generation()) return;
    return End(FailureOf(name, failed.reason, failed.unfit), false);
  }
  if (move_.revocable() && failed.generation == move_.generation()) {
    move_.Abort(absl::StrCat("worker ", name, ": ", failed.reason), roster_, effects_);
    return Train();
  }
  if (failed.generation != active_.plan.generation) return;
  if (move_.revocable()) move_.Abort(failed.reason, roster_, effects_);
  End(FailureOf(name, failed.reason, failed.unfit), false);
}

// ---- from barrier to barrier

void Coordinator::Train() {
  if (stop_requested_) return CollectFinal();  // asked for since the stages stood
  if (paused_) {
    effects_.push_back(LogLine{Severity::kInfo, absl::StrCat("paused at step ", step_)});
    stands_ = true;
    return;
  }
  if (barrier_.IsBarrier(step_) &&
      replication_.Wants(step_, recovery_.central_step(), active_, now_ns_) &&
      replication_.HasRoom(active_, Facts(), effects_)) {
    replication_.Begin(step_, batching_.FirstSequence(step_), active_, now_ns_, effects_);
  }
  barrier_.Grant(step_, std::exchange(granted_next_, std::nullopt), active_, effects_);
}

void Coordinator::Handle(int device, const BarrierReached& reached) {
  const std::optional<size_t> stage = active_.StageOf(device);
  if (!stage.has_value() || !barrier_.AddReached(*stage, reached, active_)) return;
  now_ns_ = reached.arrived_ns;
  ArriveAtBarrier(barrier_.step());
}

void Coordinator::ArriveAtBarrier(int64_t step) {
  step_ = step;
  recovery_.ReachBarrier();
  barrier_.Arrive(step_, effects_);
  if (barrier_.EvaluatesAt(step_) && !options_.evaluates_beside)
    return barrier_.BeginEvaluation(active_, effects_);
  GoOnAtBarrier();
}

void Coordinator::Handle(int, const EvaluationDone& done) {
  const absl::StatusOr<bool> recorded = barrier_.AddEvaluation(done, active_, effects_);
  if (!recorded.ok()) return End(recorded.status(), false);
  if (!*recorded) return;
  if (ending_ == Ending::kCollected) return EndIfComplete();
  GoOnAtBarrier();
}

void Coordinator::Evaluated(int64_t step, Generation generation,
                            const absl::StatusOr<EvaluationFigures>& figures) {
  const auto found = evaluations_.find(step);
  if (ended() || found == evaluations_.end() || found->second != generation) return;
  evaluations_.erase(found);
  if (figures.ok()) {
    effects_.push_back(Persist{EvaluationRecorded{step, figures->accuracy, figures->loss}});
  } else {
    options_.evaluates_beside = false;
    effects_.push_back(LogLine{
        Severity::kWarning, absl::StrCat("step ", step,
                                         ": could not be evaluated beside the "
                                         "training (",
                                         figures.status().message(),
                                         "); evaluations go through the pipeline from here on")});
    if (ending_ == Ending::kCollected && step == step_)
      return barrier_.BeginEvaluation(active_, effects_);
  }
  if (ending_ == Ending::kCollected) return EndIfComplete();
  if (collects_next_) CollectAtBarrier();
}

// What is done at a barrier after the evaluation, in order.
void Coordinator::GoOnAtBarrier() {
  // First, so that a check-point of this barrier has it: the run that goes on from there trains as
  // this one does.
  AskTrainingRule();
  if (barrier_.IsLast(step_) || stop_requested_) return CollectFinal();
  CollectAtBarrier();
}

bool Coordinator::EvaluatesBesideHere() {
  return options_.evaluates_beside && barrier_.EvaluatesAt(step_) &&
         pace_.IsWorth(Report(), options_.planner->predicted_samples_per_s(), effects_);
}

void Coordinator::CollectAtBarrier() {
  if (stop_requested_) return CollectFinal();  // while the state of the barrier before was awaited
  StateUse use = {.checkpoint = options_.collect_at_barriers && barrier_.IsBarrier(step_),
                  .evaluation = EvaluatesBesideHere()};
  // Beside the training, if nothing else is on its way: nobody waits for it.
  use.recovery = barrier_.IsBarrier(step_) && !collection_.under_way() &&
                 recovery_.WantsState(active_, Facts(), now_ns_);
  // Where links are too slow for a state at each barrier, stages must not pile up copies; where
  // evaluating takes longer than training, central must not.
  const bool waits = (use.checkpoint || use.evaluation) && collection_.is_waited_for();
  collects_next_ = waits || (use.evaluation && evaluations_.size() >= kMostEvaluations);
  if (collects_next_) return;
  if (use.evaluation) evaluations_[step_] = active_.plan.generation;
  if (use.any()) collection_.Request(step_, use, active_, effects_);
  if (use.recovery || use.checkpoint) recovery_.BeginCollecting(now_ns_);
  if (!barrier_.IsBarrier(step_)) return Train();
  AskPlanner();
}

BarrierReport Coordinator::Report() const {
  return {step_,          active_.plan, active_.first_sequence,
          active_.stages, Facts(),      measurement_.times()};
}

void Coordinator::AskTrainingRule() {
  if (options_.training_rule == nullptr || !barrier_.IsBarrier(step_)) return;
  // A run that is resumed at its end, or that stopped here before, has asked already.
  if (step_ == options_.first_step) return;
  const std::optional<ChangeTraining> proposed = options_.training_rule->AtBarrier(Report());
  if (!proposed.has_value()) return;
  effects_.push_back(Persist{TrainingChanged{proposed->change, proposed->why}});
  effects_.push_back(LogLine{
      Severity::kInfo,
      absl::StrCat("step ", step_, ": gradient bits ",
                   GradientBitsText({{0, proposed->change.gradient_bits}}), ": ", proposed->why)});
  AddTrainingChange(proposed->change, options_.changes);
  granted_next_ = proposed->change;
}

void Coordinator::AskPlanner() {
  if (MoveFromLeaving()) return;
  BarrierDecision decision = options_.planner->AtBarrier(Report());
  if (std::string remark = options_.planner->TakeRemark(); !remark.empty())
    effects_.push_back(LogLine{Severity::kInfo, std::move(remark)});
  if (auto* change = std::get_if<ChangePlan>(&decision)) return ChangeTo(std::move(*change));
  auto* measure = std::get_if<MeasureDevices>(&decision);
  if (measure == nullptr || (measure->devices.empty() && measure->paths.empty())) return Train();
  measures_next_ = std::move(*measure);
  MeasureNext();
}

void Coordinator::MeasureNext() {
  if (stop_requested_) {
    measures_next_.reset();
    return CollectFinal();
  }
  const auto log = [this](int device, const char* what) {
    effects_.push_back(LogLine{
        Severity::kInfo, absl::StrCat("step ", step_, ": worker ", roster_.name(device), what)});
  };
  // A state on its way would be measured as a slow link.
  if (!measures_next_->paths.empty() && states_under_way()) return;
  if (!measures_next_->paths.empty()) {
    const std::vector<int> paths = std::exchange(measures_next_->paths, {});
    for (const int device : paths)
      log(device, " may get layers again, the link to it is measured first");
    link_probe_.Begin(paths, LinkProbe::Media::kAsKnown, roster_, effects_);
    if (link_probe_.under_way()) return;
  }
  std::vector<int> devices = std::exchange(measures_next_, std::nullopt)->devices;
  if (devices.empty()) return AskPlanner();
  for (const int device : devices) {
    const auto at = static_cast<size_t>(device);
    const bool is_new = at >= measurement_.times().size() || measurement_.times()[at].empty();
    log(device, is_new ? " is new, it is measured"
                : active_.StageOf(device).has_value()
                    ? " is not what it was, its sub-models are measured again"
                    : " was slow and may get layers again, it is measured first");
  }
  measurement_.Begin(std::move(devices), step_, active_.plan.generation, roster_, effects_);
}

void Coordinator::Handle(int device, const Snapshot& snapshot) {
  const std::optional<size_t> stage = active_.StageOf(device);
  if (!stage.has_value()) return;
  absl::StatusOr<std::optional<StateCollected>> whole = collection_.AddPart(*stage, snapshot);
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
    ending_ = Ending::kCollected;
    return EndIfComplete();
  }
  if (collects_next_) return CollectAtBarrier();
  if (measures_next_.has_value() && !states_under_way()) MeasureNext();
}

void Coordinator::Handle(int device, const Telemetry& telemetry) {
  const std::optional<size_t> stage = active_.StageOf(device);
  if (!stage.has_value() || telemetry.generation != active_.plan.generation) return;
  active_.stages[*stage].telemetry = telemetry;
  if (*stage == 0) recovery_.AddTelemetry(telemetry, effects_);
}

// ---- the end

void Coordinator::CollectFinal() {
  if (options_.evaluate_only) return End(absl::OkStatus(), false);
  ending_ = Ending::kCollecting;
  collects_next_ = false;
  const StateUse use = {.checkpoint = true,
                        .evaluation = options_.evaluates_beside && barrier_.EvaluatesAt(step_),
                        .final = true};
  if (use.evaluation) evaluations_[step_] = active_.plan.generation;
  collection_.Request(step_, use, active_, effects_);
}

void Coordinator::EndIfComplete() {
  if (!evaluations_.empty() || barrier_.evaluating()) return;
  End(absl::OkStatus(), !barrier_.IsLast(step_));
}

void Coordinator::StopAtBarrier() {
  stop_requested_ = true;
  // Before training there is nothing to bring to a barrier.
  if (!barrier_.begun()) return End(absl::CancelledError("stopped before training began"), true);
  if (std::exchange(stands_, false)) CollectFinal();
}

void Coordinator::Abort(const absl::Status& status) { End(status, false); }

void Coordinator::FeedFailed(const absl::Status& status) {
  End(absl::UnavailableError(absl::StrCat("the feed of samples failed: ", status.message())),
      false);
}

void Coordinator::End(absl::Status status, bool stopped_by_user) {
  if (std::exchange(ending_, Ending::kEnded) == Ending::kEnded) return;
  roster_.ReleaseAll(effects_);
  effects_.push_back(RunEnded{std::move(status), step_, stopped_by_user});
}

}  // namespace runnel
