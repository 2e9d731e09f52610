#include "worker/core/worker_core.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/out_of_memory.h"

namespace runnel {
namespace {

// Ends something, takes something back, is measured by its time, or has somebody wait.
bool Overtakes(const CentralMessage& message) {
  return std::holds_alternative<AbortPlan>(message) || std::holds_alternative<Release>(message) ||
         std::holds_alternative<Refused>(message) || std::holds_alternative<ProbePiece>(message) ||
         std::holds_alternative<RelayWanted>(message) ||
         std::holds_alternative<TraceRequest>(message);
}

}  // namespace

// Brings what central says onto the loop.
class WorkerCore::Observer final : public WorkerControlObserver {
 public:
  explicit Observer(WorkerCore* worker) : worker_(worker) {}

  void OnMessage(CentralMessage message) override {
    if (auto* piece = std::get_if<ProbePiece>(&message))
      piece->arrived_ns = worker_->loop_.clock().NowNanos();
    worker_->loop_.Post([worker = worker_, message = std::move(message)]() mutable {
      worker->Handle(std::move(message));
    });
  }
  void OnClosed(const absl::Status& status) override {
    worker_->loop_.Post([worker = worker_, status] {
      worker->End(status.ok() ? absl::UnavailableError("central closed the control stream")
                              : status);
    });
  }

 private:
  WorkerCore* worker_;
};

WorkerCore::WorkerCore(WorkerOptions options, Parts parts)
    : options_(std::move(options)),
      parts_(parts),
      loop_(*parts.loop),
      endpoint_({options_.listen_address, options_.advertised_address, options_.central_address,
                 options_.name},
                &loop_, parts.transport, parts.logger,
                [this](const std::string& role, std::shared_ptr<LoopConnection> connection) {
                  if (stages_.current() == nullptr) {
                    connection->Refuse("has no stage yet");
                  } else {
                    stages_.current()->Attach(role, std::move(connection));
                  }
                }),
      observer_(std::make_unique<Observer>(this)),
      workshop_(std::make_unique<Workshop>(
          Workshop::Options{options_.state_folder, options_.device, options_.processors},
          Workshop::Parts{&loop_, &pool_, &endpoint_.routes(), &endpoint_.limits(), parts.logger,
                          &replicas_, parts.arithmetic, parts.make_lane, parts.energy,
                          [this](std::vector<ProcessorFacts> processors) {
                            Send(ProcessorList{std::move(processors)});
                          },
                          &spans_})),
      stages_(workshop_.get()) {}

WorkerCore::~WorkerCore() {
  // The end is said at once. The workshop may still be at a state that goes there. Then the stage,
  // whose completions go to a loop that no longer runs.
  if (control_ != nullptr) control_->Close();
  workshop_.reset();
  control_.reset();
  stages_.Clear();
}

WorkerHello WorkerCore::Hello() {
  WorkerHello hello;
  hello.name = options_.name;
  hello.data_address = endpoint_.address();
  hello.numerics_class = parts_.arithmetic->numerics_class();
  hello.backends = options_.backends;
  hello.recipes = options_.recipes;
  hello.codecs = options_.codecs;
  hello.secret = options_.secret;
  hello.memory_bytes = options_.memory_bytes;
  hello.device_id = options_.device_id;
  hello.incarnation = options_.incarnation;
  hello.backend = options_.backend;
  hello.processor_list = workshop_->processors();
  hello.device_class = options_.device_class;
  hello.backend_options = options_.backend_options.text();
  hello.site = options_.site;
  hello.limits = options_.limits;
  return hello;
}

absl::Status WorkerCore::Connect() {
  RUNNEL_RETURN_IF_ERROR(endpoint_.CheckAddresses());
  if (const absl::Status made = parts_.arithmetic->Prepare(); !made.ok())
    return absl::Status(made.code(), absl::StrCat("--backend: ", made.message()));
  // An address that cannot be had is said before anybody waits for central.
  RUNNEL_RETURN_IF_ERROR(endpoint_.Listen());
  RUNNEL_ASSIGN_OR_RETURN(
      control_, parts_.control->Connect(options_.central_address, options_.connect_timeout_ms,
                                        observer_.get()));
  if (!endpoint_.has_given_address())
    RUNNEL_RETURN_IF_ERROR(endpoint_.ListenAt(control_->LocalHost()));
  return control_->Send(Hello());
}

absl::Status WorkerCore::Start(EndFn on_end) {
  on_end_ = std::move(on_end);
  RUNNEL_RETURN_IF_ERROR(Connect());
  loop_.PostAfter(kHeartbeatNs, [this] { Tick(); });
  return absl::OkStatus();
}

void WorkerCore::Leave(std::string reason) {
  loop_.Post([this, reason = std::move(reason)] {
    if (ended_) return;
    if (!welcomed_) return End(absl::OkStatus());
    parts_.logger->Log(Severity::kInfo,
                       "leaving as soon as central has moved the stage, at a barrier; told to end "
                       "once more, this worker ends at once");
    Send(Leaving{reason});
  });
}

void WorkerCore::Stop() {
  loop_.Post([this] { End(absl::OkStatus()); });
}

void WorkerCore::End(const absl::Status& status) {
  if (!std::exchange(ended_, true)) on_end_(status);
}

void WorkerCore::Send(WorkerMessage message) {
  const absl::Status status = control_->Send(std::move(message));
  if (absl::IsResourceExhausted(status)) return Failed(stages_.generation(), status);
  if (!status.ok()) End(status);
}

void WorkerCore::SendTelemetry() {
  const StageHost* host = stage();
  if (host == nullptr) return;
  Telemetry telemetry = host->telemetry();
  if (parts_.fill_device != nullptr) parts_.fill_device(telemetry);
  Send(std::move(telemetry));
}

void WorkerCore::SendHeartbeat() {
  Heartbeat heartbeat{workshop_->phase(), workshop_->progress()};
  if (const StageHost* host = stage(); heartbeat.phase == WorkerPhase::kIdle && host != nullptr) {
    const Telemetry telemetry = host->telemetry();
    if (host->computing()) heartbeat.phase = WorkerPhase::kTraining;
    heartbeat.progress = telemetry.forwards + telemetry.backwards + host->evaluated();
  }
  heartbeat.clock_ns = loop_.clock().NowNanos();
  Send(heartbeat);
}

void WorkerCore::Tick() {
  SendTelemetry();
  SendHeartbeat();
  loop_.PostAfter(kHeartbeatNs, [this] { Tick(); });
}

void WorkerCore::Handle(CentralMessage message) {
  if (ended_) return;
  const bool is_busy = workshop_->phase() != WorkerPhase::kIdle || !waiting_.empty();
  if (is_busy && !Overtakes(message)) {
    waiting_.push_back(std::move(message));
  } else {
    CarryOut(message);
  }
}

void WorkerCore::CarryOut(CentralMessage& message) {
  const absl::Status carried = WithinMemory("it did what central asked for", [&] {
    std::visit([this](auto& one) { On(std::move(one)); }, message);
    return absl::OkStatus();
  });
  if (!carried.ok()) Failed(stages_.generation(), carried);
}

void WorkerCore::CarryOutWaiting() {
  while (!ended_ && !waiting_.empty() && workshop_->phase() == WorkerPhase::kIdle) {
    CentralMessage message = std::move(waiting_.front());
    waiting_.pop_front();
    CarryOut(message);
  }
}

void WorkerCore::On(const Welcome& welcome) {
  if (parts_.lives != nullptr && !parts_.lives->Admit(welcome.run, welcome.life)) {
    return End(absl::UnavailableError(
        absl::StrCat("the central at ", options_.central_address, " (life ", welcome.life,
                     ") is not the latest of its run: another one has gone on with it since")));
  }
  welcomed_ = true;
  parts_.logger->Log(Severity::kInfo, absl::StrCat("joined ", options_.central_address,
                                                   " as device ", welcome.device.value()));
}

void WorkerCore::On(const Awaiting& awaiting) {
  const std::string who = absl::StrCat("joined ", options_.central_address, " as ", options_.name);
  parts_.logger->Log(
      Severity::kInfo,
      awaiting.wanted == 0
          ? absl::StrCat(who, "; waiting for a run (", awaiting.here,
                         awaiting.here == 1 ? " worker is here)" : " workers are here)")
          : absl::StrCat(who, "; waiting for the run (", awaiting.here, " of ", awaiting.wanted,
                         " workers are here)"));
}

void WorkerCore::On(const Refused& refused) {
  End(refused.is_final ? absl::FailedPreconditionError(refused.reason)
                       : absl::ResourceExhaustedError(refused.reason));
}

void WorkerCore::On(const ProbePiece& piece) {
  for (WorkerMessage& message : workshop_->Answer(piece)) Send(std::move(message));
}

void WorkerCore::On(const TraceRequest& request) {
  spans_.Open(loop_.clock().NowNanos(), request);
  loop_.PostAfter(request.window_ns, [this] {
    if (!ended_ && spans_.is_over(loop_.clock().NowNanos())) Send(spans_.Close());
  });
}

void WorkerCore::On(const Release&) { End(absl::OkStatus()); }

}  // namespace runnel
