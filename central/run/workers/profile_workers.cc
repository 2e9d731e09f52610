#include "central/run/workers/profile_workers.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "central/run/machines/roster.h"
#include "central/run/workers/local_workers.h"
#include "proto/base/status_macros.h"
#include "proto/transport/link/address.h"
#include "proto/transport/link/event_loop.h"

namespace runnel {
namespace {

constexpr int64_t kTickNs = int64_t{100} * 1000 * 1000;
// Ranges in one request: as many as a worker measures in turns.
constexpr size_t kRangesPerRequest = 12;

RosterOptions SeatsOf(const ProfileJob& job) {
  RosterOptions options;
  options.local_workers = static_cast<int>(job.local_workers);
  options.dialling_workers = static_cast<int>(job.workers);
  options.loopback_only = IsLoopbackAddress(job.listen);
  options.recipe = job.recipe;
  options.backend = job.backend;
  return options;
}

// Everything but the streams happens on the loop's thread, which is the caller's.
class Session final : public CentralControlObserver {
 public:
  Session(const ProfileJob& job, const ProfileParts& parts)
      : job_(job), parts_(parts), loop_(parts.clock), roster_(SeatsOf(job)) {}
  ~Session() override {
    RunEffects effects;
    roster_.ReleaseAll(effects);
    CarryOut(effects);
    local_workers_.AwaitEnds();
    server_.reset();
    local_workers_.Terminate();
  }

  absl::StatusOr<std::vector<ProfiledDevice>> Run();

  void OnJoined(ConnectionId) override {}
  void OnMessage(ConnectionId id, WorkerMessage message) override {
    loop_.Post([this, id, message = std::move(message)] { Receive(id, message); });
  }
  void OnGone(ConnectionId id, const absl::Status& status) override {
    loop_.Post([this, id, status] { EndIfTaking(id, status); });
  }

 private:
  void Tick();
  void Receive(ConnectionId id, const WorkerMessage& message);
  void Join(ConnectionId id, const WorkerHello& hello);
  // The worker's stream has ended, and with it the profile if it takes part.
  void EndIfTaking(ConnectionId id, const absl::Status& status);
  // Carries out the effects that a roster may have.
  void CarryOut(const RunEffects& effects);
  void Begin();
  void SendRequest();
  void AddReport(const ProfileReport& report);
  void End(absl::Status status) {
    if (result_.ok()) result_ = std::move(status);
    loop_.Stop();
  }
  // The ranges of the request that is out.
  std::vector<LayerRange> Asked() const;
  const std::string& AskedWorker() const { return roster_.name(static_cast<int>(device_)); }

  const ProfileJob& job_;
  ProfileParts parts_;
  ThreadLoop loop_;
  std::unique_ptr<CentralControl> server_;
  LocalWorkers local_workers_;
  Roster roster_;
  std::vector<ProfiledDevice> results_;  // by device
  size_t device_ = 0;                    // index of the asked device, and its request
  size_t model_ = 0;
  size_t range_ = 0;
  absl::Status result_;
};

absl::StatusOr<std::vector<ProfiledDevice>> Session::Run() {
  RUNNEL_ASSIGN_OR_RETURN(server_, parts_.control->Listen(job_.listen, this));
  if (job_.workers > 0) {
    RUNNEL_ASSIGN_OR_RETURN(const auto commands,
                            JoinCommands(parts_.enrolment, server_->address()));
    parts_.logger->Log(Severity::kInfo, absl::StrCat("waiting for ", job_.workers,
                                                     " workers: ", HowToJoin(commands)));
  }
  RUNNEL_RETURN_IF_ERROR(local_workers_.Start(job_.local_workers,
                                              {job_.worker_threads, job_.backend_options},
                                              server_->address(), parts_.enrolment));
  loop_.PostAfter(job_.worker_timeout_s * 1'000'000'000, [this] {
    if (!roster_.complete()) End(roster_.TimeoutError(job_.worker_timeout_s));
  });
  Tick();
  loop_.Run();
  RUNNEL_RETURN_IF_ERROR(result_);
  return std::move(results_);
}

// A local worker that ends before it joined would be waited for in vain.
void Session::Tick() {
  if (!roster_.complete()) {
    if (const auto ended = local_workers_.FindEnded(); !ended.empty())
      return End(ended.front().why);
  }
  loop_.PostAfter(kTickNs, [this] { Tick(); });
}

void Session::CarryOut(const RunEffects& effects) {
  for (const RunEffect& effect : effects) {
    if (const auto* send = std::get_if<SendControl>(&effect))
      server_->Send(send->connection, send->message).IgnoreError();  // it is gone: OnGone follows
    if (const auto* close = std::get_if<CloseControl>(&effect)) server_->Close(close->connection);
    if (const auto* line = std::get_if<LogLine>(&effect))
      parts_.logger->Log(line->severity, line->text);
  }
}

void Session::Receive(ConnectionId id, const WorkerMessage& message) {
  if (const auto* hello = std::get_if<WorkerHello>(&message)) return Join(id, *hello);
  // There is no stage to move first.
  if (std::holds_alternative<Leaving>(message)) return server_->Close(id);
  if (!roster_.complete() || roster_.DeviceOf(id) != static_cast<int>(device_)) return;
  if (const auto* report = std::get_if<ProfileReport>(&message)) return AddReport(*report);
  if (const auto* failed = std::get_if<ProfileFailed>(&message)) {
    const std::string reason = absl::StrCat("worker ", AskedWorker(), ": ", failed->reason);
    End(failed->unfit ? absl::InvalidArgumentError(reason) : absl::InternalError(reason));
  }
}

void Session::Join(ConnectionId id, const WorkerHello& hello) {
  RunEffects effects;
  const absl::StatusOr<bool> complete =
      roster_.Join(id, hello, local_workers_.Contains(hello), effects);
  CarryOut(effects);
  if (!complete.ok()) return End(complete.status());
  if (*complete) Begin();
}

void Session::EndIfTaking(ConnectionId id, const absl::Status& status) {
  RunEffects effects;
  const std::optional<int> device = roster_.Leave(id, effects);
  CarryOut(effects);
  if (!device.has_value()) return;
  End(absl::UnavailableError(
      absl::StrCat("worker ", roster_.name(*device), " is gone: ", status.message())));
}

void Session::Begin() {
  for (const Device& device : roster_.devices()) results_.push_back({device.hello.name, "", {}});
  SendRequest();
}

std::vector<LayerRange> Session::Asked() const {
  const std::vector<LayerRange>& all = job_.models[model_].ranges;
  const size_t end = std::min(all.size(), range_ + kRangesPerRequest);
  return {all.begin() + static_cast<int64_t>(range_), all.begin() + static_cast<int64_t>(end)};
}

void Session::SendRequest() {
  const ProfiledModel& model = job_.models[model_];
  const absl::Status sent =
      server_->Send(roster_.device(static_cast<int>(device_)).connection,
                    ProfileRequest{model.model, job_.recipe, job_.backend, model.batch,
                                   job_.repetitions, Asked(), job_.burst_ms, job_.nominal_step_ns});
  if (!sent.ok()) End(sent);
}

void Session::AddReport(const ProfileReport& report) {
  const ProfiledModel& model = job_.models[model_];
  const std::vector<LayerRange> asked = Asked();
  if (report.layer_seconds.size() != asked.size()) {
    return End(absl::InternalError(absl::StrCat("worker ", AskedWorker(),
                                                ": its profile does not have the ranges that "
                                                "were asked for")));
  }
  // Before minutes of measuring what no file may hold.
  if (const absl::Status status = CheckIsTimed(report.numerics_class); !status.ok())
    return End(
        absl::InvalidArgumentError(absl::StrCat("worker ", AskedWorker(), ": ", status.message())));
  results_[device_].numerics_class = report.numerics_class;
  for (size_t i = 0; i < asked.size(); ++i) {
    SubModelTime time;
    time.model = model.model.name;
    time.range = asked[i];
    time.batch = model.batch;
    time.seconds_1 = report.layer_seconds[i];
    time.spread_1 = report.spreads[i];
    results_[device_].times.push_back(std::move(time));
  }
  range_ += asked.size();
  if (range_ == model.ranges.size()) {
    range_ = 0;
    ++model_;
  }
  if (model_ == job_.models.size()) {
    model_ = 0;
    ++device_;
  }
  if (device_ == results_.size()) return End(absl::OkStatus());
  SendRequest();
}

}  // namespace

absl::StatusOr<std::vector<ProfiledDevice>> ProfileWorkers(const ProfileJob& job,
                                                           const ProfileParts& parts) {
  if (job.models.empty() || job.local_workers + job.workers < 1) {
    return absl::InvalidArgumentError("profile: needs at least one model and one worker");
  }
  Session session(job, parts);
  return session.Run();
}

}  // namespace runnel
