#include "worker/daemon.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/recipe.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/certificate.h"
#include "proto/transport/link/address.h"
#include "worker/heap_limits.h"
#include "worker/measure/profiler.h"

namespace runnel {
namespace {

constexpr int64_t kTelemetryIntervalNs = int64_t{250} * 1000 * 1000;

bool IsUnfit(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status);
}

}  // namespace

// Brings what central says onto the loop.
class Daemon::Observer final : public WorkerControlObserver {
 public:
  explicit Observer(Daemon* daemon) : daemon_(daemon) {}

  void OnMessage(CentralMessage message) override {
    if (auto* piece = std::get_if<ProbePiece>(&message))
      piece->arrived_ns = daemon_->parts_.clock->NowNanos();
    daemon_->loop_.Post([daemon = daemon_, message = std::move(message)]() mutable {
      daemon->Handle(std::move(message));
    });
  }
  void OnClosed(const absl::Status& status) override {
    daemon_->loop_.Post([daemon = daemon_, status] {
      daemon->End(status.ok() ? absl::UnavailableError("central closed the control stream")
                              : status);
    });
  }

 private:
  Daemon* daemon_;
};

Daemon::Daemon(DaemonOptions options, Parts parts)
    : options_(std::move(options)),
      parts_(parts),
      loop_(parts.clock),
      measurement_({options_.state_folder, options_.device}, parts.transport, parts.clock,
                   parts.logger),
      refusals_(parts.logger, parts.clock),
      observer_(std::make_unique<Observer>(this)) {}

Daemon::~Daemon() {
  // Streams first: nothing new comes; then the stage, whose completions go to a loop that no longer
  // runs.
  control_.reset();
  aside_.reset();
  host_.reset();
  acceptor_.reset();
}

WorkerHello Daemon::Hello() const {
  WorkerHello hello;
  hello.name = options_.name;
  hello.data_address = acceptor_->address();
  hello.numerics_class = backend_ == nullptr ? "" : backend_->numerics_class();
  hello.backends = options_.backends;
  hello.recipes = options_.recipes;
  hello.codecs = options_.codecs;
  hello.secret = options_.secret;
  hello.memory_bytes = options_.memory_bytes;
  hello.device_id = options_.device_id;
  hello.incarnation = options_.incarnation;
  return hello;
}

absl::StatusOr<Backend*> Daemon::BackendFor(const std::string& name) {
  std::unique_ptr<Backend>& backend = backends_[name];
  if (backend == nullptr) {
    absl::StatusOr<std::unique_ptr<Backend>> made = MakeBackend(name, options_.threads);
    if (!made.ok()) return made.status();
    backend = *std::move(made);
  }
  return backend_ = backend.get();
}

std::vector<std::string> Daemon::NamesOf(const std::string& name) const {
  if (name != "auto") return {name};
  return options_.backend == "auto" ? AutoBackendNames() : std::vector{options_.backend};
}

absl::Status Daemon::WithBackend(const std::string& name,
                                 const std::function<absl::Status(Backend*)>& use) {
  absl::Status result;
  for (const std::string& one : NamesOf(name)) {
    RUNNEL_ASSIGN_OR_RETURN(Backend * backend, BackendFor(one));
    result = use(backend);
    if (!absl::IsUnimplemented(result)) return result;
  }
  return result;
}

// Peers are told this address: it must lead here from wherever they are.
absl::Status Daemon::CheckListenAddress() const {
  if (options_.listen_address.empty()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const Address address, ParseAddress(options_.listen_address));
  if (!address.is_wildcard()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--listen ", options_.listen_address,
                   ": other devices dial it, so it must be the address by which they reach this "
                   "one"));
}

absl::Status Daemon::ListenTowardsCentral() {
  const absl::StatusOr<std::string> host = control_->LocalHost();
  if (host.ok()) return acceptor_->Listen(parts_.transport, Address{*host, 0}.ToString());
  return absl::Status(host.status().code(),
                      absl::StrCat(host.status().message(),
                                   ": give --listen, the address by which others reach this host"));
}

absl::Status Daemon::Connect() {
  RUNNEL_RETURN_IF_ERROR(CheckListenAddress());
  if (const absl::Status made = BackendFor(NamesOf("auto").front()).status(); !made.ok())
    return absl::Status(made.code(), absl::StrCat("--backend: ", made.message()));
  acceptor_ = std::make_unique<LinkAcceptor>(
      &loop_, &limits_,
      [this](const std::string& role, std::shared_ptr<LoopConnection> connection) {
        if (host_ == nullptr) {
          connection->Refuse("has no stage yet");
        } else {
          host_->Attach(role, std::move(connection));
        }
      },
      [this](absl::string_view why) { refusals_.Refused(why); });
  // An address that cannot be had is said before anybody waits for central.
  const bool is_given = !options_.listen_address.empty();
  if (is_given)
    RUNNEL_RETURN_IF_ERROR(acceptor_->Listen(parts_.transport, options_.listen_address));
  RUNNEL_ASSIGN_OR_RETURN(
      control_, parts_.control->Connect(options_.central_address, options_.connect_timeout_ms,
                                        observer_.get()));
  if (!is_given) RUNNEL_RETURN_IF_ERROR(ListenTowardsCentral());
  return control_->Send(Hello());
}

absl::Status Daemon::Run() {
  RUNNEL_RETURN_IF_ERROR(Connect());
  loop_.PostAfter(kTelemetryIntervalNs, [this] { TelemetryTick(); });
  loop_.Run();
  return result_;
}

void Daemon::Leave() {
  loop_.Post([this] {
    if (ended_) return;
    if (!welcomed_) return End(absl::OkStatus());
    parts_.logger->Log(Severity::kInfo,
                       "leaving as soon as central has moved the stage, at a barrier; told to end "
                       "once more, this worker ends at once");
    Send(Leaving{});
  });
}

void Daemon::Stop() {
  loop_.Post([this] { End(absl::OkStatus()); });
}

void Daemon::End(absl::Status status) {
  if (std::exchange(ended_, true)) return;
  result_ = std::move(status);
  loop_.Stop();
}

void Daemon::Send(WorkerMessage message) {
  if (absl::Status status = control_->Send(std::move(message)); !status.ok()) End(status);
}

void Daemon::SendTelemetry() {
  if (host_ != nullptr) Send(host_->telemetry());
}

void Daemon::TelemetryTick() {
  SendTelemetry();
  loop_.PostAfter(kTelemetryIntervalNs, [this] { TelemetryTick(); });
}

void Daemon::Handle(CentralMessage message) {
  if (ended_) return;
  std::visit([this](auto& one) { On(std::move(one)); }, message);
}

void Daemon::On(const Welcome& welcome) {
  if (parts_.lives != nullptr && !parts_.lives->Admit(welcome.run, welcome.life)) {
    return End(absl::UnavailableError(
        absl::StrCat("the central at ", options_.central_address, " (life ", welcome.life,
                     ") is not the latest of its run: another one has gone on with it since")));
  }
  welcomed_ = true;
  parts_.logger->Log(Severity::kInfo, absl::StrCat("joined ", options_.central_address,
                                                   " as device ", welcome.device.value()));
}

void Daemon::On(const Refused& refused) {
  End(refused.is_final ? absl::FailedPreconditionError(refused.reason)
                       : absl::ResourceExhaustedError(refused.reason));
}

void Daemon::On(const ProbePiece& piece) {
  for (WorkerMessage& message : measurement_.Answer(piece)) Send(std::move(message));
}

void Daemon::On(const ProfileRequest& request) {
  const auto profile = [&](const ProfileOptions& options,
                           const auto& on_progress) -> absl::StatusOr<std::vector<RangeTime>> {
    RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(request.recipe));
    std::vector<RangeTime> times;
    RUNNEL_RETURN_IF_ERROR(WithBackend(request.backend, [&](Backend* backend) {
      absl::StatusOr<std::vector<RangeTime>> measured =
          ProfileRanges(request.model, *recipe, *backend, options, *parts_.clock, on_progress);
      if (measured.ok()) times = *std::move(measured);
      return measured.status();
    }));
    TrimHeaps();
    return times;
  };
  const Generation generation = request.generation;
  absl::StatusOr<ProfileReport> report =
      measurement_.Answer(request, profile, [&](ProfileProgress progress) {
        progress.generation = generation;
        Send(progress);
      });
  if (report.ok()) {
    report->generation = generation;
    return Send(*std::move(report));
  }
  const std::string reason(report.status().message());
  parts_.logger->Log(Severity::kDebug, reason);
  Send(ProfileFailed{reason, IsUnfit(report.status()), generation});
}

void Daemon::On(PrepareStage stage) {
  aside_.reset();
  // First, so that two stages are never in memory at once.
  if (stage.starts_over) host_.reset();
  // What did not come stands here.
  if (host_ != nullptr) {
    absl::StatusOr<ModelState> state = host_->TakeSnapshot();
    if (!state.ok()) return Failed(stage.plan.generation, state.status());
    state->encoders.clear();
    Merge(stage.state, *state);
    stage.state = Slice(*state, stage.plan.stages[stage.stage].first_layer,
                        stage.plan.stages[stage.stage].last_layer);
  }
  const Generation generation = stage.plan.generation;
  absl::StatusOr<std::unique_ptr<StageHost>> host;
  const absl::Status made = WithBackend(stage.backend, [&](Backend* backend) {
    const StageEnvironment environment{&loop_,           &pool_,   backend,
                                       parts_.transport, &limits_, measurement_.shares_processor()};
    host = MakeStageHost(stage, environment, Events(generation));
    return host.status();
  });
  if (!made.ok()) return Failed(generation, made, IsUnfit(made));
  LinkExpectation expectation{stage.link_token, stage.upstream_peer, CentralSubject().ToString()};
  aside_ = Aside{*std::move(host), generation, std::move(expectation), stage.shaping};
  Send(StagePrepared{generation});
}

void Daemon::On(const FetchLayers& request) {
  if (host_ == nullptr) return FailWithoutStage("hand over layers");
  absl::StatusOr<ModelState> state = host_->TakeSnapshot();
  if (!state.ok()) return Failed(generation_, state.status());
  LayersFetched fetched{request.generation, *std::move(state)};
  std::erase_if(fetched.state.layers, [&](const LayerState& layer) {
    return std::none_of(request.ranges.begin(), request.ranges.end(), [&](const LayerRange& range) {
      return range.first_layer <= layer.layer && layer.layer <= range.last_layer;
    });
  });
  Send(std::move(fetched));
}

void Daemon::On(const CommitPlan& commit) {
  // Whoever has no stage in the new plan waits for another.
  host_.reset();
  generation_ = commit.generation;
  if (!aside_.has_value() || aside_->generation != commit.generation) return;
  host_ = std::move(aside_->host);
  acceptor_->Expect(std::move(aside_->expectation), aside_->shaping);
  aside_.reset();
  host_->Start();
}

void Daemon::On(const AbortPlan& abort) {
  if (aside_.has_value() && aside_->generation == abort.generation) aside_.reset();
}

StageEvents Daemon::Events(Generation generation) {
  StageEvents events;
  events.on_ready = [this, generation] { Send(StageReady{generation}); };
  events.on_barrier = [this, generation](Sequence sequence) {
    SendTelemetry();
    Send(BarrierReached{generation, sequence});
  };
  events.on_evaluation = [this](const EvaluationDone& done) { Send(done); };
  events.on_first_backward = [this] { SendTelemetry(); };
  // The host is in the middle of something: it goes when the loop is back.
  events.on_failed = [this, generation](const absl::Status& status) { Failed(generation, status); };
  return events;
}

void Daemon::Failed(Generation generation, const absl::Status& status, bool unfit) {
  parts_.logger->Log(Severity::kDebug, std::string(status.message()));
  Send(StageFailed{generation, std::string(status.message()), unfit});
  loop_.Post([this, generation] {
    if (generation_ == generation) host_.reset();
  });
}

void Daemon::FailWithoutStage(absl::string_view request) {
  Send(StageFailed{generation_, absl::StrCat("was asked to ", request, " and has no stage")});
}

void Daemon::On(const RunUntil& grant) {
  if (IsAboutAnother(grant.generation)) return;
  if (host_ == nullptr) return FailWithoutStage("train");
  if (grant.change.has_value()) host_->ChangeTraining(*grant.change);
  if (absl::Status status = host_->RunUntil(grant.limit); !status.ok()) Failed(generation_, status);
}

void Daemon::On(const SnapshotRequest& request) {
  if (IsAboutAnother(request.generation)) return;
  if (host_ == nullptr) return FailWithoutStage("report its state");
  absl::StatusOr<ModelState> state = host_->TakeSnapshot();
  if (!state.ok()) return Failed(generation_, state.status());
  if (request.weights_only) KeepWeightsOnly(*state);
  Send(Snapshot{generation_, request.sequence, *std::move(state)});
}

void Daemon::On(const EvaluateRequest& request) {
  if (IsAboutAnother(request.generation)) return;
  if (host_ == nullptr) return FailWithoutStage("evaluate");
  if (absl::Status status = host_->Evaluate(request.first, request.micro_batches); !status.ok()) {
    Failed(generation_, status);
  }
}

void Daemon::On(const Release&) { End(absl::OkStatus()); }

}  // namespace runnel
