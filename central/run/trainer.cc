#include "central/run/trainer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "central/planning/plan_maker.h"
#include "central/planning/planner.h"
#include "central/run/checkpoints/checkpoint_failures.h"
#include "central/run/checkpoints/checkpoint_writer.h"
#include "central/run/checkpoints/make_checkpoint.h"
#include "central/run/coordinator_options.h"
#include "central/run/evaluator.h"
#include "central/run/feeder.h"
#include "central/run/machines/coordinator.h"
#include "central/run/run_record.h"
#include "central/run/waiting.h"
#include "central/run/workers/local_workers.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/payload.h"
#include "proto/transport/link/address.h"
#include "proto/transport/link/event_loop.h"
#include "proto/transport/link/port_probe.h"

namespace runnel {
namespace {

constexpr int64_t kTickNs = int64_t{100} * 1000 * 1000;
constexpr int64_t kNsPerSecond = 1'000'000'000;
// Of an operator.
constexpr std::chrono::seconds kAnswerPatience(3);
// In which a host that is there says whether somebody listens. Several fit into the time after
// which a worker is cut off: a way that is there again is noticed.
constexpr int64_t kPortTimeoutMs = 300;

// What a worker may hand over at a time: all layers, encoders that keep a value for each element of
// a boundary, and some room for names.
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
  return bytes;
}

// On those whose times count: when they came.
void Stamp(int64_t now_ns, WorkerMessage& message) {
  if (auto* piece = std::get_if<ProbePiece>(&message)) piece->arrived_ns = now_ns;
  if (auto* heartbeat = std::get_if<Heartbeat>(&message)) heartbeat->arrived_ns = now_ns;
  if (auto* reached = std::get_if<BarrierReached>(&message)) reached->arrived_ns = now_ns;
  if (auto* snapshot = std::get_if<Snapshot>(&message)) snapshot->arrived_ns = now_ns;
}

}  // namespace

// Connections and the writer of check-points report on threads of their own, and StopAtBarrier may
// be called on any: all post to loop_. All else is on the thread of Run.
class Trainer::Impl final : public CentralControlObserver {
 public:
  Impl(TrainingJob job, TrainerParts parts)
      : job_(std::move(job)), parts_(parts), loop_(parts.clock) {}
  ~Impl() override;

  absl::StatusOr<TrainingOutcome> Run();
  int64_t step() const { return coordinator_.has_value() ? coordinator_->step() : job_.first_step; }
  void StopAtBarrier() {
    loop_.Post([this] { Tell([](Coordinator& coordinator) { coordinator.StopAtBarrier(); }); });
  }

  void Cancel() {
    loop_.Post([this] { Abort(absl::CancelledError("the run was cancelled")); });
  }

  // Asks the coordinator on the thread of Run.
  template <typename Answer, typename AskFn>
  Answer Ask(AskFn ask) {
    struct Shared {
      std::mutex mutex;
      std::condition_variable answered;
      std::optional<Answer> answer;
    };
    const auto shared = std::make_shared<Shared>();
    loop_.Post([this, shared, ask] {
      Tell([&](Coordinator& coordinator) {
        const std::lock_guard<std::mutex> lock(shared->mutex);
        shared->answer = ask(coordinator);
      });
      shared->answered.notify_all();
    });
    std::unique_lock<std::mutex> lock(shared->mutex);
    shared->answered.wait_for(lock, kAnswerPatience, [&] { return shared->answer.has_value(); });
    if (shared->answer.has_value()) return *std::move(shared->answer);
    return absl::UnavailableError("the run does not answer: it begins, ends, or its host is busy");
  }

  void OnJoined(ConnectionId) override {}
  void OnMessage(ConnectionId id, WorkerMessage message) override {
    Stamp(parts_.clock->NowNanos(), message);
    loop_.Post([this, id, message = std::move(message)] { Receive(id, message); });
  }
  bool OnBroken(ConnectionId id, const absl::Status& status) override {
    loop_.Post([this, id, status] {
      Tell([&](Coordinator& coordinator) {
        coordinator.Broken(id, status, parts_.clock->NowNanos());
      });
    });
    return true;
  }
  void OnResumed(ConnectionId id) override {
    loop_.Post([this, id] {
      Tell([&](Coordinator& coordinator) { coordinator.Resumed(id, parts_.clock->NowNanos()); });
    });
  }
  void OnGone(ConnectionId id, const absl::Status& status) override {
    const absl::Status reason =
        status.ok() ? absl::UnavailableError("it closed its control stream") : status;
    loop_.Post([this, id, reason, now_ns = parts_.clock->NowNanos()] {
      record_->recoveries().Lose(now_ns - std::exchange(heard_ns_[id], now_ns));
      Tell([&](Coordinator& coordinator) { coordinator.Gone(id, reason); });
    });
  }

 private:
  const RunSetup& setup() const { return *job_.setup; }
  absl::Status StartWorkers();
  absl::Status MakeEvaluator();
  void Receive(ConnectionId id, const WorkerMessage& message);
  void Tick();
  void TimerFired();
  void Written(const CheckpointEnd& end);
  void StopIfEnded();
  void Abort(const absl::Status& status);

  // Gives the coordinator an event and carries out what it wants.
  template <typename Event>
  void Tell(Event event) {
    if (!coordinator_.has_value()) return;
    event(*coordinator_);
    for (RunEffect& effect : coordinator_->TakeEffects()) {
      std::visit([this](auto& one) { CarryOut(std::move(one)); }, effect);
    }
  }
  void CarryOut(SendControl effect);
  void CarryOut(CloseControl effect);
  void CarryOut(ProbePort effect);
  void CarryOut(SetTimer effect) {
    loop_.PostAfter(effect.at_ns - parts_.clock->NowNanos(), [this] { TimerFired(); });
  }
  void CarryOut(ConnectFeed effect);
  void CarryOut(StopFeed) {
    record_->clock().Stop();
    feeder_.reset();
  }
  void CarryOut(StartLocalWorker effect);
  void CarryOut(RecoveryReached effect);
  void CarryOut(FeedUntil effect);
  void CarryOut(FeedEvaluation effect) {
    feeder_->FeedEvaluation(effect.first, effect.micro_batches);
  }
  void CarryOut(Persist effect);
  void CarryOut(StateCollected effect);
  void CarryOut(LogLine effect) {
    parts_.display->MakeWay();
    parts_.logger->Log(effect.severity, effect.text);
  }
  void CarryOut(RunEnded effect);
  // What a journal record means for the display and the summary.
  void Follow(const PlanDecided& decided);
  void Follow(const BarrierPassed& barrier) {
    record_->clock().Stop();
    record_->AddBarrier(barrier.step, coordinator_->stages());
  }
  void Follow(const EvaluationRecorded& evaluation);
  void Follow(const Recovered& recovered) { record_->GoBackTo(recovered.step); }
  template <typename Other>
  void Follow(const Other&) {}
  RunView View() {
    RunView view =
        record_->View(coordinator_->plan(), coordinator_->stages(), coordinator_->step());
    view.period = job_.planner->period();
    view.replication = coordinator_->replication();
    return view;
  }

  TrainingJob job_;
  TrainerParts parts_;
  EventLoop loop_;
  BufferPool pool_;
  std::optional<Coordinator> coordinator_;
  std::optional<RunRecord> record_;
  std::unique_ptr<CentralControl> server_;
  std::map<ConnectionId, int64_t> heard_ns_;  // when each worker was last heard of
  std::unique_ptr<Feeder> feeder_;
  LocalWorkers local_workers_;
  std::vector<int64_t> layer_bytes_;  // of the state, by layer
  TrainingOutcome outcome_;
  absl::Status result_;
  bool ended_ = false;     // the coordinator says so
  int64_t unwritten_ = 0;  // check-points that the writer has and has not told the end of
  CheckpointFailures failures_;
  // Last: their threads post to the loop.
  PortProbe ports_;
  std::optional<CheckpointWriter> writer_;
  std::unique_ptr<Evaluator> evaluator_;  // null: evaluations go through the pipeline
};

Trainer::Impl::~Impl() {
  // Links and streams first, then the processes that they led to.
  feeder_.reset();
  local_workers_.AwaitEnds();
  server_.reset();
  local_workers_.Terminate();
}

absl::Status Trainer::Impl::StartWorkers() {
  const RunSettings& settings = setup().settings;
  if (settings.workers > 0) {
    RUNNEL_ASSIGN_OR_RETURN(const std::string how, HowToJoin(parts_.enrolment, server_->address()));
    parts_.display->Line(absl::StrCat("waiting for ", settings.workers, " workers: ", how));
  }
  if (!parts_.start_workers) return absl::OkStatus();
  return local_workers_.Start(std::max<int64_t>(settings.local_workers, 1), settings.worker_threads,
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
  const std::string& folder = setup().settings.checkpoint_dir;
  if (!folder.empty()) {
    writer_.emplace(
        [folder, claim = job_.claim](const Checkpoint& checkpoint) -> absl::StatusOr<std::string> {
          if (claim != nullptr) RUNNEL_RETURN_IF_ERROR(claim->CheckHeld());
          return WriteCheckpoint(checkpoint, folder);
        },
        [this](CheckpointEnd end) { loop_.Post([this, end] { Written(end); }); });
  }
  RUNNEL_ASSIGN_OR_RETURN(layer_bytes_, StateBytes(setup().model, setup().format));
  RUNNEL_ASSIGN_OR_RETURN(server_, parts_.control->Listen(setup().settings.listen, this));
  server_->LimitStates(MaxStateBytes(setup(), layer_bytes_));
  RUNNEL_RETURN_IF_ERROR(StartWorkers());
  const int64_t timeout_s = setup().settings.worker_timeout_s;
  loop_.PostAfter(timeout_s * kNsPerSecond, [this, timeout_s] {
    Tell([timeout_s](Coordinator& coordinator) { coordinator.JoinTimedOut(timeout_s); });
  });
  Tick();
  TimerFired();
  loop_.Run();
  RUNNEL_RETURN_IF_ERROR(result_);
  outcome_.summary = record_->Summarise(coordinator_->stages(), outcome_.step, outcome_.state);
  outcome_.summary.predicted_samples_per_s = job_.planner->predicted_samples_per_s();
  outcome_.summary.period = job_.planner->period();
  outcome_.summary.replication = coordinator_->replication();
  outcome_.summary.searches = job_.planner->searches();
  outcome_.plans = record_->plans();
  outcome_.plan = outcome_.summary.plan;
  return std::move(outcome_);
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
  if (coordinator_->joining() && result_.ok()) {
    if (const absl::Status status = local_workers_.CheckAlive(); !status.ok())
      Tell([&](Coordinator& coordinator) { coordinator.EndedBeforeJoining(status); });
  }
  const Waiting waiting = WaitingOf(*coordinator_, *server_, layer_bytes_);
  parts_.display->Transfer(waiting.what, waiting.done, waiting.total);
  if (coordinator_->running()) parts_.display->Update(View());
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

void Trainer::Impl::CarryOut(CloseControl effect) {
  // It may be one that is lost: how long it was silent is the time that it took to find out.
  if (const auto heard = heard_ns_.find(effect.connection); heard != heard_ns_.end())
    record_->recoveries().Lose(parts_.clock->NowNanos() - heard->second);
  server_->Close(effect.connection);
}

void Trainer::Impl::CarryOut(ProbePort effect) {
  const auto tell = [this, id = effect.connection](PortAnswer answer) {
    loop_.Post([this, id, answer] {
      Tell([&](Coordinator& coordinator) {
        coordinator.PortProbed(id, answer, parts_.clock->NowNanos());
      });
    });
  };
  if (parts_.ask_port != nullptr) return parts_.ask_port(effect.data_address, tell);
  const absl::StatusOr<Address> address = ParseAddress(effect.data_address);
  if (!address.ok()) return tell(PortAnswer::kNone);
  ports_.Ask(address->host, address->port, kPortTimeoutMs, tell);
}

void Trainer::Impl::CarryOut(SendControl effect) {
  const absl::Status status = server_->Send(effect.connection, std::move(effect.message));
  // The stream has ended: OnGone says so in its turn.
  if (!status.ok()) parts_.logger->Log(Severity::kDebug, std::string(status.message()));
}

void Trainer::Impl::CarryOut(ConnectFeed effect) {
  FeederOptions options;
  options.transport = parts_.transport;
  options.train = job_.data->train.get();
  options.test = job_.data->test.get();
  options.run_seed = setup().training.seed;
  options.augmentation = setup().augmentation;
  options.eval_batch_size = setup().training.eval_batch_size;
  feeder_ = std::make_unique<Feeder>(
      &loop_, &pool_, options, coordinator_->batching(), [this](const absl::Status& status) {
        Tell([&](Coordinator& coordinator) { coordinator.FeedFailed(status); });
      });
  feeder_->Connect(effect.generation, effect.first, effect.last, effect.first_sequence,
                   effect.window);
}

void Trainer::Impl::CarryOut(StartLocalWorker effect) {
  if (absl::Status status = local_workers_.StartAgain(effect.name); !status.ok()) Abort(status);
}

void Trainer::Impl::CarryOut(RecoveryReached effect) {
  const std::string line = record_->recoveries().Reach(effect, parts_.clock->NowNanos());
  if (!line.empty()) parts_.display->Line(line);
}

void Trainer::Impl::CarryOut(FeedUntil effect) {
  record_->clock().Start();
  feeder_->FeedUntil(effect.limit);
}

void Trainer::Impl::CarryOut(Persist effect) {
  std::visit([this](const auto& record) { Follow(record); }, effect.record);
  if (parts_.journal == nullptr) return;
  if (absl::Status status = parts_.journal->Append(effect.record); !status.ok()) Abort(status);
}

void Trainer::Impl::Follow(const PlanDecided& decided) {
  const bool is_first = record_->plans().empty();
  const PlanBandwidth bandwidth = job_.planner->AssumedBandwidth(decided.plan);
  record_->AddPlan(decided, bandwidth);
  if (setup().plain_loop) return;
  std::vector<std::string> names;
  for (const JournalDevice& device : decided.devices) names.push_back(device.name);
  parts_.display->Line(ToString(decided.plan, setup().model, names));
  if (!bandwidth.links.empty()) parts_.display->Line(BandwidthText(bandwidth));
  const std::string why = is_first ? job_.planner->Explanation() : "";
  if (!why.empty()) parts_.display->Line(why);
}

void Trainer::Impl::Follow(const EvaluationRecorded& evaluation) {
  record_->AddEvaluation(evaluation);
  parts_.display->Evaluation(View(), evaluation.step, evaluation.accuracy, evaluation.loss);
}

void Trainer::Impl::CarryOut(StateCollected effect) {
  const bool is_written = writer_.has_value() && (effect.use.checkpoint || effect.use.final);
  if (effect.use.evaluation) {
    const bool is_last_use = !effect.use.final && !is_written;
    evaluator_->Evaluate(effect.step, effect.generation,
                         is_last_use ? std::move(effect.state) : effect.state);
  }
  if (effect.use.final) outcome_.state = is_written ? effect.state : std::move(effect.state);
  if (!is_written) return;
  ++unwritten_;
  if (effect.use.final) failures_.ExpectLast(effect.step);
  writer_->Add(MakeCheckpoint(setup(), server_->address(), *coordinator_, std::move(effect)));
}

void Trainer::Impl::Written(const CheckpointEnd& end) {
  --unwritten_;
  std::string warning;
  const absl::Status ends_run = failures_.Add(end, warning);
  if (!warning.empty()) CarryOut(LogLine{Severity::kWarning, std::move(warning)});
  if (!ends_run.ok()) {
    Abort(ends_run);
  } else if (!end.path.empty() && parts_.journal != nullptr) {
    const absl::Status status = parts_.journal->Append(CheckpointWritten{end.step, end.path});
    if (!status.ok()) Abort(status);
  }
  StopIfEnded();
}

void Trainer::Impl::Abort(const absl::Status& status) {
  // Not from within an effect: the coordinator may be about to say that all is well.
  if (result_.ok()) result_ = status;
  loop_.Post(
      [this, status] { Tell([&](Coordinator& coordinator) { coordinator.Abort(status); }); });
}

void Trainer::Impl::CarryOut(RunEnded effect) {
  record_->clock().Stop();
  if (!job_.plan_only) parts_.display->Finish(View());
  outcome_.step = effect.step;
  outcome_.stopped_by_user = effect.stopped_by_user;
  if (result_.ok()) result_ = effect.status;
  ended_ = true;
  StopIfEnded();
}

void Trainer::Impl::StopIfEnded() {
  // What was sent last (Release) still has to leave: streams close in order when they are
  // destroyed.
  if (ended_ && unwritten_ == 0) loop_.Stop();
}

Trainer::Trainer(TrainingJob job, TrainerParts parts)
    : impl_(std::make_unique<Impl>(std::move(job), parts)) {}
Trainer::~Trainer() = default;
absl::StatusOr<TrainingOutcome> Trainer::Run() { return impl_->Run(); }
int64_t Trainer::step() const { return impl_->step(); }
void Trainer::StopAtBarrier() { impl_->StopAtBarrier(); }
void Trainer::Cancel() { impl_->Cancel(); }

absl::StatusOr<MemberList> Trainer::Members() {
  return impl_->Ask<absl::StatusOr<MemberList>>(
      [](Coordinator& coordinator) { return coordinator.Members(); });
}

absl::Status Trainer::Drain(const std::string& name) {
  return impl_->Ask<absl::Status>(
      [name](Coordinator& coordinator) { return coordinator.Drain(name); });
}

absl::Status Trainer::Pause(bool paused) {
  return impl_->Ask<absl::Status>([paused](Coordinator& coordinator) {
    coordinator.Pause(paused);
    return absl::OkStatus();
  });
}

}  // namespace runnel
