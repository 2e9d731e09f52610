#include "central/run/profile_workers.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/run/worker_process.h"
#include "proto/base/status_macros.h"
#include "proto/transport/link/event_loop.h"

namespace runnel {
namespace {

constexpr int64_t kTickNs = int64_t{100} * 1000 * 1000;
constexpr int64_t kWorkerGraceMs = 3000;
// Ranges in one request: as many as a worker measures in turns.
constexpr size_t kRangesPerRequest = 12;

// Everything but the streams happens on the loop's thread, which is the caller's.
class Session final : public CentralControlObserver {
 public:
  Session(const ProfileJob& job, const ProfileParts& parts)
      : job_(job), parts_(parts), loop_(parts.clock) {}
  ~Session() override {
    for (const Device& device : devices_) {
      if (device.gone) continue;
      server_->Send(device.connection, Release{}).IgnoreError();
    }
    for (const auto& process : processes_) process->Wait(kWorkerGraceMs);
    server_.reset();
    for (const auto& process : processes_) process->Terminate(kWorkerGraceMs);
  }

  absl::StatusOr<std::vector<ProfiledDevice>> Run();

  void OnJoined(ConnectionId) override {}
  void OnMessage(ConnectionId id, WorkerMessage message) override {
    loop_.Post([this, id, message = std::move(message)] { Received(id, message); });
  }
  void OnGone(ConnectionId id, const absl::Status& status) override {
    loop_.Post([this, id, status] { Gone(id, status); });
  }

 private:
  struct Device {
    ConnectionId connection;
    ProfiledDevice result;
    bool gone = false;
  };

  absl::Status StartWorkers();
  void Tick();
  void Received(ConnectionId id, const WorkerMessage& message);
  void Gone(ConnectionId id, const absl::Status& status);
  void Joined(ConnectionId id, const WorkerHello& hello);
  void Begin();
  void Ask();
  void Answered(const ProfileReport& report);
  void End(absl::Status status) {
    if (result_.ok()) result_ = std::move(status);
    loop_.Stop();
  }
  // The ranges of the request that is out.
  std::vector<LayerRange> Asked() const;

  const ProfileJob& job_;
  ProfileParts parts_;
  EventLoop loop_;
  std::unique_ptr<CentralControl> server_;
  std::vector<std::unique_ptr<WorkerProcess>> processes_;
  std::vector<Device> devices_;
  bool measuring_ = false;
  size_t device_ = 0;  // which is asked, for what
  size_t model_ = 0;
  size_t range_ = 0;
  absl::Status result_;
};

absl::Status Session::StartWorkers() {
  if (job_.local_workers == 0) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const std::string binary, FindWorkerBinary());
  for (int64_t i = 0; i < job_.local_workers; ++i) {
    WorkerCommand command;
    command.binary = binary;
    command.arguments = {"--central", server_->address(),
                         "--name",    absl::StrFormat("local-%03d", i),
                         "--threads", absl::StrCat(job_.worker_threads)};
    command.threads = job_.worker_threads;
    command.log_level = "warn";
    RUNNEL_ASSIGN_OR_RETURN(auto process, WorkerProcess::Start(command));
    processes_.push_back(std::move(process));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ProfiledDevice>> Session::Run() {
  RUNNEL_ASSIGN_OR_RETURN(server_, parts_.control->Listen(job_.listen, this));
  if (job_.workers > 0) {
    parts_.logger->Log(Severity::kInfo,
                       absl::StrCat("waiting for ", job_.workers,
                                    " workers: runnel-worker --central ", server_->address()));
  }
  RUNNEL_RETURN_IF_ERROR(StartWorkers());
  loop_.PostAfter(job_.worker_timeout_s * 1'000'000'000, [this] {
    if (measuring_) return;
    End(absl::DeadlineExceededError(absl::StrCat(
        devices_.size(), " of ", job_.local_workers + job_.workers, " workers joined within ",
        job_.worker_timeout_s, " s: start the others, or ask for fewer")));
  });
  Tick();
  loop_.Run();
  RUNNEL_RETURN_IF_ERROR(result_);
  std::vector<ProfiledDevice> results;
  for (Device& device : devices_) results.push_back(std::move(device.result));
  return results;
}

// A local worker that ends before it joined would be waited for in vain.
void Session::Tick() {
  for (const auto& process : processes_) {
    const std::optional<ProcessExit> exit = process->Poll();
    if (!exit.has_value() || measuring_) continue;
    return End(absl::UnavailableError(
        absl::StrCat("a local worker ended with ", exit->ToString(), " before it joined")));
  }
  loop_.PostAfter(kTickNs, [this] { Tick(); });
}

void Session::Received(ConnectionId id, const WorkerMessage& message) {
  if (const auto* hello = std::get_if<WorkerHello>(&message)) return Joined(id, *hello);
  if (!measuring_ || device_ >= devices_.size() || devices_[device_].connection != id) return;
  if (const auto* report = std::get_if<ProfileReport>(&message)) return Answered(*report);
  if (const auto* failed = std::get_if<StageFailed>(&message)) {
    const std::string reason =
        absl::StrCat("worker ", devices_[device_].result.name, ": ", failed->reason);
    End(failed->unfit ? absl::InvalidArgumentError(reason) : absl::InternalError(reason));
  }
}

void Session::Gone(ConnectionId id, const absl::Status& status) {
  for (Device& device : devices_) {
    if (device.connection != id) continue;
    device.gone = true;
    End(absl::UnavailableError(
        absl::StrCat("worker ", device.result.name, " is gone: ", status.message())));
  }
}

void Session::Joined(ConnectionId id, const WorkerHello& hello) {
  std::string refusal;
  if (hello.protocol_version != kProtocolVersion) {
    refusal = "it speaks another protocol version: install the same release on both";
  } else if (measuring_) {
    refusal = "all workers that were asked for are there";
  }
  for (const Device& device : devices_) {
    if (device.result.name == hello.name)
      refusal = "there is a worker of that name: give this one another --name";
  }
  if (!refusal.empty()) {
    server_->Send(id, Refused{absl::StrCat("worker ", hello.name, ": ", refusal)}).IgnoreError();
    server_->Close(id);
    return;
  }
  devices_.push_back({id, {hello.name, hello.numerics_class, {}}});
  if (static_cast<int64_t>(devices_.size()) == job_.local_workers + job_.workers) Begin();
}

void Session::Begin() {
  measuring_ = true;
  std::sort(devices_.begin(), devices_.end(),
            [](const Device& a, const Device& b) { return a.result.name < b.result.name; });
  for (size_t i = 0; i < devices_.size(); ++i) {
    server_->Send(devices_[i].connection, Welcome{DeviceId(static_cast<int32_t>(i))}).IgnoreError();
  }
  Ask();
}

std::vector<LayerRange> Session::Asked() const {
  const std::vector<LayerRange>& all = job_.models[model_].ranges;
  const size_t end = std::min(all.size(), range_ + kRangesPerRequest);
  return {all.begin() + static_cast<int64_t>(range_), all.begin() + static_cast<int64_t>(end)};
}

void Session::Ask() {
  const ProfiledModel& model = job_.models[model_];
  const absl::Status sent =
      server_->Send(devices_[device_].connection,
                    ProfileRequest{model.model, job_.recipe, job_.backend, model.batch,
                                   job_.repetitions, Asked(), job_.burst_ms, job_.nominal_step_ns});
  if (!sent.ok()) End(sent);
}

void Session::Answered(const ProfileReport& report) {
  const ProfiledModel& model = job_.models[model_];
  const std::vector<LayerRange> asked = Asked();
  if (report.layer_seconds.size() != asked.size()) {
    return End(absl::InternalError(absl::StrCat("worker ", devices_[device_].result.name,
                                                ": its profile does not have the ranges that "
                                                "were asked for")));
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    SubModelTime time;
    time.model = model.model.name;
    time.range = asked[i];
    time.batch = model.batch;
    time.seconds_1 = report.layer_seconds[i];
    time.spread_1 = report.spreads[i];
    devices_[device_].result.times.push_back(std::move(time));
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
  if (device_ == devices_.size()) return End(absl::OkStatus());
  Ask();
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
