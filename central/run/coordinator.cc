#include "central/run/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Micro-batches on their way to a stage: enough to hide the feed behind the compute, few enough to
// be small in memory.
constexpr int64_t kFeedWindow = 8;

bool Contains(const std::vector<std::string>& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A stage that does not fit its worker is the user's to change.
absl::Status FailureOf(const std::string& worker, const StageFailed& failed) {
  std::string what = absl::StrCat("worker ", worker, ": ", failed.reason);
  return failed.unfit ? absl::InvalidArgumentError(what) : absl::AbortedError(what);
}

}  // namespace

absl::StatusOr<Coordinator> Coordinator::Create(CoordinatorOptions options) {
  RUNNEL_ASSIGN_OR_RETURN(Batching batching, MakeBatching(options.training));
  return Coordinator(std::move(options), batching);
}

Coordinator::Coordinator(CoordinatorOptions options, Batching batching)
    : options_(std::move(options)), batching_(batching), step_(options_.first_step) {}

std::vector<CoordinatorEffect> Coordinator::TakeEffects() { return std::exchange(effects_, {}); }

int Coordinator::DeviceOf(ConnectionId connection) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].connection == connection) return static_cast<int>(i);
  }
  return -1;
}

int Coordinator::StageOfDevice(int device) const {
  for (size_t i = 0; i < plan_.stages.size(); ++i) {
    if (plan_.stages[i].device.value() == device) return static_cast<int>(i);
  }
  return -1;
}

void Coordinator::Send(int stage, CentralMessage message) {
  effects_.push_back(
      SendControl{devices_[plan_.stages[stage].device.value()].connection, std::move(message)});
}

// ---- joining

absl::Status Coordinator::Fits(const WorkerHello& hello) const {
  if (!Contains(hello.recipes, options_.recipe)) {
    return absl::InvalidArgumentError(absl::StrCat("--recipe ", options_.recipe, ": worker ",
                                                   hello.name, " has ",
                                                   absl::StrJoin(hello.recipes, ", ")));
  }
  const std::string family = options_.backend.substr(0, options_.backend.find(':'));
  if (options_.backend != "auto" && !Contains(hello.backends, options_.backend) &&
      !Contains(hello.backends, family)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--backend ", options_.backend, ": worker ", hello.name, " has ",
                     absl::StrJoin(hello.backends, ", "), " (or auto)"));
  }
  for (const std::string& codec : options_.codecs) {
    if (!Contains(hello.codecs, codec)) {
      return absl::InvalidArgumentError(absl::StrCat("codec ", codec, ": worker ", hello.name,
                                                     " has ", absl::StrJoin(hello.codecs, ", ")));
    }
  }
  return absl::OkStatus();
}

void Coordinator::Refuse(ConnectionId connection, std::string reason) {
  effects_.push_back(LogLine{Severity::kWarning, absl::StrCat("refused a worker: ", reason)});
  effects_.push_back(SendControl{connection, Refused{std::move(reason)}});
  effects_.push_back(CloseControl{connection});
}

void Coordinator::Joined(ConnectionId connection, const WorkerHello& hello, bool local) {
  if (hello.protocol_version != kProtocolVersion) {
    Refuse(connection, absl::StrCat("worker ", hello.name, " speaks protocol version ",
                                    hello.protocol_version, ", this central speaks ",
                                    kProtocolVersion, ": install the same release on both"));
    return;
  }
  if (phase_ != Phase::kJoining) {
    Refuse(connection, absl::StrCat("worker ", hello.name, " came when the run had its ",
                                    options_.workers, " workers"));
    return;
  }
  for (const Device& device : devices_) {
    if (device.hello.name == hello.name) {
      Refuse(connection, absl::StrCat("there is a worker named ", hello.name,
                                      " already: give this one another --name"));
      return;
    }
  }
  if (absl::Status status = Fits(hello); !status.ok()) {
    Refuse(connection, std::string(status.message()));
    // A worker from elsewhere may be replaced by a better one; our own will not change.
    if (local) End(status, false);
    return;
  }
  devices_.push_back({connection, hello, local});
  if (static_cast<int>(devices_.size()) == options_.workers) Begin();
}

void Coordinator::JoinTimedOut(int64_t waited_s) {
  if (phase_ != Phase::kJoining) return;
  End(absl::DeadlineExceededError(absl::StrCat(devices_.size(), " of ", options_.workers,
                                               " workers joined within ", waited_s,
                                               " s: start the others, or ask for fewer")),
      false);
}

// All are there: the local ones first, then by name, so that the same workers make the same
// pipeline.
void Coordinator::Begin() {
  std::sort(devices_.begin(), devices_.end(), [](const Device& a, const Device& b) {
    if (a.local != b.local) return a.local;
    return a.hello.name < b.hello.name;
  });
  std::vector<std::string> classes;
  for (size_t i = 0; i < devices_.size(); ++i) {
    effects_.push_back(
        SendControl{devices_[i].connection, Welcome{DeviceId(static_cast<int32_t>(i))}});
    if (!Contains(classes, devices_[i].hello.numerics_class))
      classes.push_back(devices_[i].hello.numerics_class);
  }
  // Integer recipes give the same bytes on all classes.
  if (classes.size() > 1 && !options_.format.scaled()) {
    effects_.push_back(LogLine{
        Severity::kWarning,
        absl::StrCat("workers are of several numerics classes (", absl::StrJoin(classes, "; "),
                     "): the run is not reproducible bit for bit if layers move")});
  }
  lost_.assign(devices_.size(), false);
  if (!options_.needs_profile) return MakePlan();
  times_.assign(devices_.size(), {});
  phase_ = Phase::kProfiling;
  for (size_t i = 0; i < devices_.size(); ++i) to_measure_.push_back(static_cast<int>(i));
  Measure();
}

// ---- preparing

void Coordinator::MakePlan() {
  absl::StatusOr<Plan> plan = options_.planner->FirstPlan(FactsOfDevices(), times_);
  if (plan.ok()) {
    plan->generation = options_.first_generation;
    if (absl::Status status = CheckPlan(*plan, options_.model); !status.ok()) plan = status;
  }
  if (!plan.ok()) return End(plan.status(), false);
  plan_ = *std::move(plan);
  PersistPlan(times_);
  if (options_.plan_only) return End(absl::OkStatus(), false);
  Prepare();
}

void Coordinator::PersistPlan(const std::vector<DeviceTimes>& times) {
  PlanDecided decided{step_, plan_, {}};
  for (size_t i = 0; i < devices_.size(); ++i) {
    JournalDevice device{devices_[i].hello.name, devices_[i].hello.numerics_class};
    if (!times.empty()) {
      device.times = times[i];
      device.processor_share = devices_[i].processor_share;
    }
    decided.devices.push_back(std::move(device));
  }
  effects_.push_back(Persist{std::move(decided)});
}

// The stages of plan_ have done nothing yet.
void Coordinator::ResetStages() {
  phase_ = Phase::kPreparing;
  plan_first_ = batching_.FirstSequence(step_);
  stages_.clear();
  ready_.assign(plan_.stages.size(), false);
  at_barrier_.assign(plan_.stages.size(), false);
  for (const StagePlan& stage : plan_.stages) {
    stages_.push_back({stage, devices_[stage.device.value()].hello.name, {}});
  }
}

void Coordinator::Prepare() {
  ResetStages();
  for (size_t i = 0; i < plan_.stages.size(); ++i) {
    const StagePlan& stage = plan_.stages[i];
    PrepareStage message = StageMessage(plan_, i);
    message.state = Slice(options_.initial_state, stage.first_layer, stage.last_layer);
    Send(static_cast<int>(i), std::move(message));
  }
  ConnectTheFeed();
}

// Without the state.
PrepareStage Coordinator::StageMessage(const Plan& plan, size_t stage) const {
  PrepareStage message;
  message.plan = plan;
  message.stage = static_cast<int>(stage);
  message.plain_loop = options_.plain_loop;
  message.model = options_.model;
  message.training = options_.training;
  message.eval_samples = options_.eval_samples;
  message.recipe = options_.recipe;
  message.backend = options_.backend;
  message.link_token = LinkToken(plan.generation);
  if (stage + 1 < plan.stages.size()) {
    message.downstream_address = devices_[plan.stages[stage + 1].device.value()].hello.data_address;
  }
  message.shaping = options_.shaping;
  message.first_sequence = batching_.FirstSequence(step_);
  return message;
}

// One for each generation, so that nobody reaches a stage of another plan.
std::string Coordinator::LinkToken(Generation generation) const {
  return absl::StrCat(options_.link_token, ":", generation.value());
}

void Coordinator::ConnectTheFeed() {
  const auto address = [this](const StagePlan& stage) {
    return devices_[stage.device.value()].hello.data_address;
  };
  effects_.push_back(ConnectFeed{plan_.generation, LinkToken(plan_.generation),
                                 address(plan_.stages.front()), address(plan_.stages.back()),
                                 batching_.FirstSequence(step_),
                                 plan_.stages.front().cap + kFeedWindow});
}

void Coordinator::On(int stage, const StageReady& ready) {
  if (phase_ != Phase::kPreparing || !Current(ready.generation)) return;
  ready_[stage] = true;
  if (std::find(ready_.begin(), ready_.end(), false) != ready_.end()) return;
  phase_ = Phase::kRunning;
  if (stop_requested_) return CollectFinal();  // while layers moved
  // A resumed run that has nothing left to train is evaluated and collected all the same.
  if (step_ >= options_.stop_step) {
    limit_ = step_;
    AtBarrier();
  } else {
    GrantNext();
  }
}

// ---- running

void Coordinator::GrantNext() {
  phase_ = Phase::kRunning;
  limit_ = std::min(options_.barriers.Next(step_), options_.stop_step);
  at_barrier_.assign(stages_.size(), false);
  const Sequence sequence = batching_.FirstSequence(limit_);
  for (size_t i = 0; i < stages_.size(); ++i) Send(static_cast<int>(i), RunUntil{sequence});
  effects_.push_back(FeedUntil{sequence});
}

void Coordinator::On(int stage, const BarrierReached& reached) {
  if (phase_ != Phase::kRunning || !Current(reached.generation)) return;
  if (reached.sequence != batching_.FirstSequence(limit_)) return;
  at_barrier_[stage] = true;
  if (std::find(at_barrier_.begin(), at_barrier_.end(), false) == at_barrier_.end()) AtBarrier();
}

void Coordinator::AtBarrier() {
  step_ = limit_;
  effects_.push_back(Persist{BarrierPassed{step_}});
  const bool last = step_ >= options_.stop_step;
  if (options_.eval_samples > 0 && (last || options_.barriers.IsEvaluation(step_))) {
    Evaluate();
  } else {
    AfterEvaluation();
  }
}

void Coordinator::Evaluate() {
  phase_ = Phase::kEvaluating;
  const int64_t batch = options_.training.eval_batch_size;
  const int64_t micro_batches = (options_.eval_samples + batch - 1) / batch;
  const Sequence first(next_eval_sequence_);
  next_eval_sequence_ += micro_batches;
  for (size_t i = 0; i < stages_.size(); ++i)
    Send(static_cast<int>(i), EvaluateRequest{first, micro_batches});
  effects_.push_back(FeedEvaluation{first, micro_batches});
}

void Coordinator::On(int, const EvaluationDone& done) {
  if (phase_ != Phase::kEvaluating) return;
  if (done.samples != options_.eval_samples) {
    return End(absl::InternalError(absl::StrCat("evaluated ", done.samples, " of ",
                                                options_.eval_samples, " samples")),
               false);
  }
  const double samples = static_cast<double>(done.samples);
  effects_.push_back(Persist{EvaluationRecorded{step_, static_cast<double>(done.correct) / samples,
                                                done.loss_sum / samples}});
  AfterEvaluation();
}

void Coordinator::AfterEvaluation() {
  const bool last = step_ >= options_.stop_step || stop_requested_;
  if (last) return CollectFinal();
  if (options_.collect_at_barriers && options_.barriers.IsBarrier(step_)) Collect(/*final=*/false);
  if (options_.barriers.IsBarrier(step_)) return MeasureAndReplan();
  GrantNext();
}

void Coordinator::CollectFinal() {
  phase_ = Phase::kCollecting;
  Collect(/*final=*/true);
}

// The stages copy their state before they go on; it comes in while they train.
void Coordinator::Collect(bool final) {
  Collection& collection = collections_[step_];
  collection.missing = static_cast<int>(stages_.size());
  collection.final = final;
  for (size_t i = 0; i < stages_.size(); ++i) {
    Send(static_cast<int>(i), SnapshotRequest{batching_.FirstSequence(step_)});
  }
}

void Coordinator::On(int, const Snapshot& snapshot) {
  const auto found = std::find_if(collections_.begin(), collections_.end(), [&](const auto& entry) {
    return batching_.FirstSequence(entry.first) == snapshot.sequence;
  });
  if (found == collections_.end() || !Current(snapshot.generation)) return;
  Merge(snapshot.state, found->second.state);
  if (--found->second.missing > 0) return;

  const int64_t step = found->first;
  const bool final = found->second.final;
  ModelState state = std::move(found->second.state);
  collections_.erase(found);
  absl::Status whole =
      CheckState(state, options_.model, 0, options_.model.layer_count() - 1, options_.format);
  if (!whole.ok()) return End(absl::InternalError(whole.message()), false);
  effects_.push_back(StateCollected{step, final, std::move(state)});
  if (final) End(absl::OkStatus(), step < options_.stop_step);
}

void Coordinator::On(int stage, const Telemetry& telemetry) {
  // Before all stages stand, it may be about a stage of the plan before.
  if (phase_ == Phase::kPreparing) return;
  stages_[stage].telemetry = telemetry;
}

// ---- ending

void Coordinator::On(int stage, const StageFailed& failed) {
  if (!Current(failed.generation)) return;
  if (phase_ == Phase::kMoving) TakeMoveBack(failed.reason);
  End(FailureOf(stages_[stage].worker, failed), false);
}

void Coordinator::StopAtBarrier() {
  stop_requested_ = true;
  // Before training there is nothing to bring to a barrier.
  if (limit_ == 0 &&
      (phase_ == Phase::kJoining || phase_ == Phase::kProfiling || phase_ == Phase::kPreparing)) {
    End(absl::CancelledError("stopped before training began"), true);
  }
}

void Coordinator::Abort(const absl::Status& status) { End(status, false); }

void Coordinator::FeedFailed(const absl::Status& status) {
  End(absl::UnavailableError(absl::StrCat("the feed of samples failed: ", status.message())),
      false);
}

void Coordinator::Gone(ConnectionId connection, const absl::Status& status) {
  const int device = DeviceOf(connection);
  if (device < 0 || phase_ == Phase::kEnded) return;
  const std::string name = devices_[device].hello.name;
  if (phase_ == Phase::kJoining && !devices_[device].local) {
    devices_.erase(devices_.begin() + device);
    effects_.push_back(
        LogLine{Severity::kWarning, absl::StrCat("worker ", name, " left before the run began")});
    return;
  }
  effects_.push_back(
      Persist{WorkerLost{step_, DeviceId(device), name, std::string(status.message())}});
  if (phase_ == Phase::kMoving) {
    lost_[device] = true;
    TakeMoveBack(absl::StrCat("worker ", name, " was lost"));
  }
  // Whoever has no stage is not missed.
  if (!lost_.empty() && !plan_.stages.empty() && StageOfDevice(device) < 0) {
    lost_[device] = true;
    if (phase_ == Phase::kMoving) GoOn();
    return;
  }
  End(absl::UnavailableError(absl::StrCat("worker ", name, " was lost after step ", step_, " (",
                                          status.message(), ")")),
      false);
}

void Coordinator::End(absl::Status status, bool stopped_by_user) {
  if (phase_ == Phase::kEnded) return;
  phase_ = Phase::kEnded;
  for (const Device& device : devices_)
    effects_.push_back(SendControl{device.connection, Release{}});
  effects_.push_back(RunEnded{std::move(status), step_, stopped_by_user});
}

void Coordinator::Received(ConnectionId connection, const WorkerMessage& message) {
  const int device = DeviceOf(connection);
  if (device < 0 || phase_ == Phase::kEnded) return;
  if (const auto* report = std::get_if<ProfileReport>(&message)) return On(device, *report);
  if (const auto* prepared = std::get_if<StagePrepared>(&message)) return Prepared(*prepared);
  const auto* failed = std::get_if<StageFailed>(&message);
  if (failed != nullptr && move_.has_value() && failed->generation == move_->plan.generation) {
    TakeMoveBack(absl::StrCat("worker ", devices_[device].hello.name, ": ", failed->reason));
    return GoOn();
  }
  if (failed != nullptr && phase_ == Phase::kMeasuring &&
      std::count(to_measure_.begin(), to_measure_.end(), device) > 0)
    return CannotMeasure(device, failed->reason);
  const int stage = StageOfDevice(device);
  if (stage < 0) {
    // A profile or a stage that could not even begin.
    if (failed != nullptr) {
      End(FailureOf(devices_[device].hello.name, *failed), false);
    }
    return;
  }
  std::visit([this, stage](const auto& one) { On(stage, one); }, message);
}

}  // namespace runnel
