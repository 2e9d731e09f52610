#include "central/run/trainer.h"

#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "central/display/chrome_trace.h"
#include "central/planning/kept_samples.h"
#include "central/planning/planner.h"
#include "central/planning/rules/gate_counts.h"
#include "central/run/coordinator_options.h"
#include "central/run/gate_figures.h"
#include "central/run/trainer_impl.h"
#include "central/run/waiting.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/loss_scale.h"
#include "proto/base/training/precision/precision_cost.h"
#include "proto/base/training/recipe_family.h"
#include "proto/crypto/certificate.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

constexpr int64_t kTickNs = int64_t{100} * 1000 * 1000;
constexpr int64_t kNsPerSecond = 1'000'000'000;

// Address by which this process dials its own control port.
std::string OwnPort(const std::string& listens) {
  absl::StatusOr<Address> address = ParseAddress(listens);
  if (!address.ok() || !address->is_wildcard()) return listens;
  address->host = address->host == "::" ? "::1" : "127.0.0.1";
  return address->ToString();
}

// Largest state that a worker may hand over: all layers, encoders that keep a value for each
// element of a boundary, what both ends keep of samples (of whatever boundary), and some room for
// names.
int64_t MaxStateBytes(const RunSetup& setup, const std::vector<int64_t>& layer_bytes) {
  constexpr int64_t kRoom = int64_t{1} << 20;
  constexpr int64_t kEncoderBytes = 2 * sizeof(float);  // both directions
  int64_t bytes = kRoom + std::accumulate(layer_bytes.begin(), layer_bytes.end(), int64_t{0});
  const absl::StatusOr<std::vector<LayerInfo>> layers =
      InferShapes(setup.model, setup.training.batch_size);
  if (!layers.ok()) return bytes;
  for (const LayerInfo& layer : *layers) {
    if (!layer.op_outputs.empty()) bytes += layer.op_outputs.back().elements() * kEncoderBytes;
  }
  const auto kept =
      KeptStateBytes({setup.model, setup.settings.codec_forward, setup.training.dataset_samples});
  if (kept.ok()) bytes += 2 * *kept;
  return bytes;
}

// Of classes that evaluations count.
std::vector<std::string> ClassNames(const TrainingJob& job) {
  std::vector<std::string> names;
  const int64_t classes = job.setup->model.classes;
  if (job.data == nullptr || classes > kMostConfusedClasses) return names;
  for (int64_t c = 0; c < classes; ++c) names.push_back(job.data->test->class_name(c));
  return names;
}

// What planner, rules and replication came to at the end.
void AddDecided(const TrainingJob& job, const Coordinator& coordinator, TrainingOutcome& outcome) {
  const int64_t step = outcome.step;
  RunSummary& summary = outcome.summary;
  outcome.changes = coordinator.ChangesAt(step);
  summary.class_names = ClassNames(job);
  summary.predicted_samples_per_s = job.planner->predicted_samples_per_s();
  summary.period = job.planner->period();
  summary.searches = job.planner->searches();
  summary.replication = coordinator.replication();
  if (job.setup->format.scales_loss())
    summary.loss_scale = LossScaleAt(job.setup->training, coordinator.ChangesAt(step), step);
  const absl::StatusOr<RecipeName> recipe = ParseRecipeName(job.setup->settings.recipe);
  if (!recipe.ok() || job.evaluate_only || step == 0) return;
  // In FP32 there is none.
  std::vector<int64_t> marks;
  for (const EvaluationSummary& one : summary.evaluations) marks.push_back(one.step);
  const absl::StatusOr<PrecisionCost> cost = CostOfPrecision(
      job.setup->model, *recipe, job.setup->training, coordinator.ChangesAt(step), step, marks);
  if (!cost.ok()) return;
  for (size_t i = 0; i < marks.size() && !cost->gates_learn; ++i)
    summary.evaluations[i].effective_macs = cost->effective_at[i];
  summary.precision = *cost;
  summary.precision_setting = job.setup->training.precision;
  const RuleStates states = coordinator.RuleStatesAt(step);
  const auto counted = states.find(std::string(GateCounts::kName));
  if (counted == states.end()) return;
  absl::StatusOr<GateSummary> gates = GateSummaryOf(*job.setup, *cost, counted->second);
  if (!gates.ok()) return;  // no barrier was reached
  for (const TrainingChange& change : outcome.changes)
    gates->turns += change.dial == kCostTargetDial ? 1 : 0;
  summary.gates = *std::move(gates);
}

// Stamps the time of arrival on messages that need it.
void Stamp(int64_t now_ns, WorkerMessage& message) {
  if (auto* piece = std::get_if<ProbePiece>(&message)) piece->arrived_ns = now_ns;
  if (auto* heartbeat = std::get_if<Heartbeat>(&message)) heartbeat->arrived_ns = now_ns;
  if (auto* reached = std::get_if<BarrierReached>(&message)) reached->arrived_ns = now_ns;
  if (auto* snapshot = std::get_if<Snapshot>(&message)) snapshot->arrived_ns = now_ns;
  if (auto* done = std::get_if<EvaluationDone>(&message)) done->arrived_ns = now_ns;
  if (auto* done = std::get_if<DryRunDone>(&message)) done->arrived_ns = now_ns;
}

}  // namespace

Trainer::Impl::~Impl() {
  // Links and streams first, then the processes that they led to.
  feed_.Stop();
  local_workers_.AwaitEnds();
  server_.reset();
  local_workers_.Terminate();
}

void Trainer::Impl::OnMessage(ConnectionId id, WorkerMessage message) {
  Stamp(parts_.clock->NowNanos(), message);
  loop_.Post([this, id, message = std::move(message)] { Receive(id, message); });
}

absl::Status Trainer::Impl::StartWorkers() {
  const RunSettings& settings = setup().settings;
  if (settings.workers > 0) {
    RUNNEL_ASSIGN_OR_RETURN(join_commands_, JoinCommands(parts_.enrolment, server_->address()));
    parts_.display->Line(
        absl::StrCat("waiting for ", settings.workers, " workers: ", HowToJoin(join_commands_)));
  }
  parts_.display->Begin(Facts());
  if (!parts_.start_workers) return absl::OkStatus();
  return local_workers_.Start(std::max<int64_t>(settings.local_workers, 1),
                              {settings.worker_threads, settings.backend_options},
                              server_->address(), parts_.enrolment);
}

absl::Status Trainer::Impl::MakeEvaluator() {
  const auto done = [this](int64_t step, Generation generation,
                           const absl::StatusOr<EvaluationFigures>& figures) {
    loop_.Post([this, step, generation, figures] {
      Tell([&](Coordinator& coordinator) { coordinator.Evaluated(step, generation, figures); });
    });
  };
  RUNNEL_ASSIGN_OR_RETURN(
      evaluator_,
      Evaluator::Create(
          setup(), *job_.data,
          {parts_.transport, parts_.control, parts_.clock, parts_.logger, parts_.enrolment}, done));
  return absl::OkStatus();
}

absl::StatusOr<TrainingOutcome> Trainer::Impl::Run() {
  CoordinatorOptions options = MakeCoordinatorOptions(job_, parts_.start_workers);
  if (options.evaluates_beside) RUNNEL_RETURN_IF_ERROR(MakeEvaluator());
  RUNNEL_ASSIGN_OR_RETURN(coordinator_, Coordinator::Create(std::move(options)));
  record_.emplace(job_.setup, coordinator_->batching(), job_.first_step, job_.stop_step,
                  parts_.clock);
  if (job_.log.has_value()) {
    record_->KeepLog(*std::exchange(job_.log, std::nullopt), [this](const std::string& line) {
      CarryOut(LogLine{Severity::kWarning, line});
    });
  }
  if (parts_.journal != nullptr) {
    JournalThread::Tell tell;
    tell.failed = [this](const absl::Status& status) {
      loop_.Post([this, status] { Abort(status); });
    };
    tell.waits = [this](const std::string& line) { parts_.logger->Log(Severity::kWarning, line); };
    journal_.emplace(parts_.journal, std::move(tell));
  }
  const std::string& folder = setup().settings.checkpoint_dir;
  if (!folder.empty()) {
    JournalThread* journal = journal_.has_value() ? &*journal_ : nullptr;
    const auto ended = [this](const CheckpointEnd& end) {
      loop_.Post([this, end] { Written(end); });
    };
    best_ = BestCheckpoint(folder);
    checkpoints_.Begin(folder, job_.claim, journal, ended, [this](const std::string& line) {
      parts_.logger->Log(Severity::kWarning, line);
    });
  }
  RUNNEL_ASSIGN_OR_RETURN(layer_bytes_, StateBytes(setup().model, setup().format));
  RUNNEL_ASSIGN_OR_RETURN(server_, parts_.control->Listen(setup().settings.listen, this));
  absl::StatusOr<std::shared_ptr<void>> shown = nullptr;
  if (parts_.show) shown = parts_.show(server_->address());
  if (!shown.ok()) {
    parts_.logger->Log(Severity::kWarning,
                       absl::StrCat("orders find this central by --central ", server_->address(),
                                    " only: ", shown.status().message()));
  }
  const bool has_data = job_.data != nullptr;  // a job that only plans has none
  feed_.Open(
      {.train = has_data ? job_.data->train.get() : nullptr,
       .test = has_data ? &job_.evaluated() : nullptr,
       .run_seed = setup().training.seed,
       .augmentation = setup().augmentation,
       .batch_size = setup().training.batch_size,
       .eval_batch_size = setup().training.eval_batch_size},
      {parts_.transport, parts_.clock, OwnPort(server_->address()), CentralSubject().ToString()});
  server_->LimitStates(MaxStateBytes(setup(), layer_bytes_));
  RUNNEL_RETURN_IF_ERROR(StartWorkers());
  const int64_t timeout_s = setup().settings.worker_timeout_s;
  loop_.PostAfter(timeout_s * kNsPerSecond, [this, timeout_s] {
    Tell([timeout_s](Coordinator& coordinator) { coordinator.JoinTimedOut(timeout_s); });
  });
  Tick();
  TimerFired();
  loop_.Run();
  if (journal_.has_value()) end_.Fail(journal_->Flush());
  RUNNEL_RETURN_IF_ERROR(end_.status());
  TrainingOutcome& outcome = end_.outcome();
  outcome.summary = record_->Summarise(Stages(), outcome.step, outcome.state);
  AddDecided(job_, *coordinator_, outcome);
  outcome.plans = record_->plans();
  outcome.programs = coordinator_->programs();
  outcome.plan = outcome.summary.plan;
  if (job_.evaluate_only)
    outcome.evaluation_s = static_cast<double>(record_->clock().plan_ns()) * 1e-9;
  return std::move(outcome);
}

void Trainer::Impl::Receive(ConnectionId id, const WorkerMessage& message) {
  heard_ns_[id] = parts_.clock->NowNanos();
  if (const auto* hello = std::get_if<WorkerHello>(&message)) {
    Tell([&](Coordinator& coordinator) {
      coordinator.Joined(id, *hello, local_workers_.Contains(*hello));
    });
    return;
  }
  Tell([&](Coordinator& coordinator) { coordinator.Received(id, message); });
  if (std::holds_alternative<Telemetry>(message)) record_->AddTelemetry(coordinator_->stages());
}

void Trainer::Impl::Tick() {
  // A local worker that ends before it joined would be waited for in vain.
  if (coordinator_->joining() && end_.ok()) {
    for (const LocalWorkers::EndedEarly& ended : local_workers_.FindEnded()) {
      Tell(
          [&](Coordinator& coordinator) { coordinator.EndedBeforeJoining(ended.name, ended.why); });
    }
  }
  // At the end links go one after the other.
  if (!end_.ended()) {
    for (std::string& line : local_workers_.TakeEnds())
      CarryOut(LogLine{Severity::kWarning, std::move(line)});
    for (std::string& line : relays_.Follow(server_->RelayedLinks()))
      CarryOut(LogLine{Severity::kWarning, std::move(line)});
    coordinator_->SetRelayed(Stages());
  }
  waiting_ = job_.evaluate_only && feed_.feeder() != nullptr
                 ? EvaluationOf(*feed_.feeder())
                 : WaitingOf(*coordinator_, *server_, layer_bytes_);
  parts_.display->Transfer(waiting_.what, waiting_.done, waiting_.total);
  if (!job_.evaluate_only && !job_.plan_only)
    coordinator_->running() ? parts_.display->Update(View()) : parts_.display->Stand(View());
  loop_.PostAfter(kTickNs, [this] { Tick(); });
}

void Trainer::Impl::TimerFired() {
  int64_t moved_bytes = 0;
  for (const Device& device : coordinator_->devices()) {
    const TransferProgress states = server_->Transfer(device.connection);
    moved_bytes += states.arrived_bytes + states.received_bytes;
  }
  Tell([&](Coordinator& coordinator) {
    coordinator.TimerFired(parts_.clock->NowNanos(), moved_bytes);
  });
}

void Trainer::Impl::Written(const CheckpointEnd& end) {
  std::string warning;
  const absl::Status ends_run = checkpoints_.Ended(end, parts_.clock->NowNanos(), warning);
  if (!end.status.ok()) {
    parts_.display->AddEvent({EventKind::kCheckpointFailed, end.step,
                              "the check-point could not be written",
                              std::string(end.status.message())});
  } else if (!end.path.empty()) {
    parts_.display->AddEvent({EventKind::kCheckpoint, end.step, "check-point " + end.path});
    best_.Written(end.step, end.path);
  }
  if (!warning.empty()) CarryOut(LogLine{Severity::kWarning, std::move(warning)});
  if (!ends_run.ok()) {
    Abort(ends_run);
  } else if (!end.path.empty() && journal_.has_value()) {
    journal_->Append(CheckpointWritten{end.step, end.path});
  }
  StopIfEnded();
}

void Trainer::Impl::Abort(const absl::Status& status) {
  // Not from within an effect: the coordinator may be about to say that all is well.
  end_.Fail(status);
  loop_.Post(
      [this, status] { Tell([&](Coordinator& coordinator) { coordinator.Abort(status); }); });
}

void Trainer::Impl::StopIfEnded() {
  // The last message (Release) still has to leave: streams close in order when they are destroyed.
  if (end_.ended() && checkpoints_.all_ended()) loop_.Stop();
}

absl::StatusOr<MemberList> Trainer::Impl::Members() {
  return Ask<absl::StatusOr<MemberList>>([this](Coordinator& coordinator) {
    MemberList list = coordinator.Members();
    relays_.Mark(list);
    return list;
  });
}

absl::StatusOr<std::string> Trainer::Impl::Trace(int64_t window_ms) {
  constexpr int64_t kMostMs = kMaxTraceNs / 1'000'000;
  if (window_ms < 0 || window_ms > kMostMs) {
    return absl::InvalidArgumentError(
        absl::StrCat("a trace of ", window_ms, " ms: a window has 1 to ", kMostMs));
  }
  const int64_t now_ns = parts_.clock->NowNanos();
  if (window_ms > 0) {
    RUNNEL_RETURN_IF_ERROR(Ask<absl::Status>([now_ns, window_ms](Coordinator& coordinator) {
      return coordinator.BeginTrace(now_ns, window_ms * 1'000'000);
    }));
    return std::string();
  }
  using Taken = absl::StatusOr<std::optional<RunTrace>>;
  RUNNEL_ASSIGN_OR_RETURN(
      const std::optional<RunTrace> trace,
      Ask<Taken>([now_ns](Coordinator& coordinator) { return coordinator.TakeTrace(now_ns); }));
  return trace.has_value() ? ChromeTrace(*trace) : std::string();
}

absl::StatusOr<Planner::LateAnswer> Trainer::Impl::WhatIf(const std::string& assumption) {
  using Late = absl::StatusOr<Planner::LateAnswer>;
  return Ask<Late>([this, assumption](Coordinator&) -> Late {
    if (!record_.has_value() || record_->plans().empty())
      return absl::FailedPreconditionError("no plan holds yet");
    return job_.planner->WhatIf(assumption, record_->plans().back());
  });
}

Trainer::Trainer(TrainingJob job, TrainerParts parts)
    : impl_(std::make_unique<Impl>(std::move(job), parts)) {}
Trainer::~Trainer() = default;
absl::StatusOr<TrainingOutcome> Trainer::Run() { return impl_->Run(); }
int64_t Trainer::step() const { return impl_->step(); }
void Trainer::StopAtBarrier() { impl_->StopAtBarrier(); }
void Trainer::Cancel() { impl_->Cancel(); }
bool Trainer::LosesWeights() const { return impl_->LosesWeights(); }

absl::StatusOr<MemberList> Trainer::Members() { return impl_->Members(); }

absl::StatusOr<std::string> Trainer::Trace(int64_t window_ms) { return impl_->Trace(window_ms); }

absl::StatusOr<Planner::LateAnswer> Trainer::WhatIf(const std::string& assumption) {
  return impl_->WhatIf(assumption);
}

absl::Status Trainer::Drain(const std::string& name) {
  return impl_->Ask<absl::Status>(
      [name](Coordinator& coordinator) { return coordinator.Drain(name); });
}

absl::Status Trainer::Replan() {
  return impl_->Ask<absl::Status>([](Coordinator& coordinator) { return coordinator.Replan(); });
}

absl::Status Trainer::Pause(bool paused) {
  return impl_->Ask<absl::Status>([paused](Coordinator& coordinator) {
    coordinator.Pause(paused);
    return absl::OkStatus();
  });
}

}  // namespace runnel
