#include "worker/service.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/process/host_memory.h"
#include "worker/heap_limits.h"
#include "worker/out_of_memory.h"

namespace runnel {
namespace {

// Length of one dial, within which the transport tries again and again: long enough for a handshake
// on a slow link, short enough for a user who wants to end the worker.
constexpr int64_t kDialMs = 3'000;
constexpr std::chrono::seconds kLimitsEvery{1};

}  // namespace

WorkerService::WorkerService(ServiceOptions options, const Daemon::Parts& parts)
    : options_([&options] {
        if (!options.once) options.daemon.connect_timeout_ms = kDialMs;
        return std::move(options);
      }()),
      parts_(parts),
      lives_(options_.daemon.state_folder.empty()
                 ? ""
                 : options_.daemon.state_folder + "/central_lives"),
      rejoin_(options_.once) {
  parts_.lives = &lives_;
}

absl::Status WorkerService::Serve(bool& welcomed) {
  WorkerOptions options = options_.daemon;
  options.incarnation += limited_runs_;
  // The free memory changes from run to run.
  if (options.memory_bytes == 0) options.memory_bytes = AvailableMemoryBytes();
  std::optional<Daemon> daemon;
  RUNNEL_RETURN_IF_ERROR(WithinMemory("it began to dial central", [&] {
    daemon.emplace(std::move(options), parts_);
    return absl::OkStatus();
  }));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stops_ > 0 || held_) return absl::OkStatus();
    daemon_ = &*daemon;
    leaves_ = false;
  }
  absl::Status status = daemon->Run();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    daemon_ = nullptr;
  }
  welcomed = daemon->welcomed();
  return status;
}

absl::Status WorkerService::Run() {
  if (options_.held_by == nullptr) return ServeForEver();
  CheckLimits();
  std::thread watch([this] { WatchLimits(); });
  absl::Status status = ServeForEver();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  watch.join();
  return status;
}

absl::Status WorkerService::ServeForEver() {
  while (true) {
    if (!AwaitLimits()) return absl::OkStatus();
    bool welcomed = false;
    const absl::Status status = Serve(welcomed);
    TrimHeaps();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stops_ > 0) return absl::OkStatus();
      // It has left, or would have; the limit may have ended meanwhile.
      if ((held_ || leaves_) && status.ok()) {
        if (welcomed) ++limited_runs_;
        continue;
      }
    }
    const RejoinPolicy::Next next = rejoin_.After(status, welcomed);
    if (next.ends) return next.status;
    if (!next.line.empty()) parts_.logger->Log(Severity::kInfo, next.line);
    if (!Pause(next.pause_ms)) return absl::OkStatus();
  }
}

bool WorkerService::AwaitLimits() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (held_ && options_.once) return false;
  changed_.wait(lock, [this] { return stops_ > 0 || !held_; });
  return stops_ == 0;
}

void WorkerService::WatchLimits() {
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (changed_.wait_for(lock, kLimitsEvery, [this] { return ended_; })) return;
    }
    CheckLimits();
  }
}

void WorkerService::CheckLimits() {
  const std::lock_guard<std::mutex> asking(limits_mutex_);
  const std::string reason = options_.held_by();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (held_ == !reason.empty()) return;
  held_ = !reason.empty();
  parts_.logger->Log(Severity::kInfo, held_ ? absl::StrCat("takes no part: ", reason)
                                            : "takes part again: no limit holds this device");
  if (held_ && daemon_ != nullptr) {
    daemon_->Leave(reason);
    leaves_ = true;
  }
  changed_.notify_all();
}

bool WorkerService::Pause(int64_t pause_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::milliseconds(pause_ms),
                            [this] { return stops_ > 0; });
}

void WorkerService::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++stops_;
  changed_.notify_all();
  if (daemon_ == nullptr) return;
  if (stops_ == 1) {
    daemon_->Leave();
  } else {
    daemon_->Stop();
  }
}

}  // namespace runnel
