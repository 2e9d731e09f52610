#include "worker/service.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/process/host_memory.h"
#include "worker/heap_limits.h"

namespace runnel {
namespace {

// Of one dial, within which the transport tries again and again: long enough for a handshake on a
// slow link, short enough for one who wants to end the worker.
constexpr int64_t kDialMs = 3'000;
constexpr int64_t kFirstPauseMs = 100;
constexpr int64_t kLongestPauseMs = 2'000;

// Another dial meets it again.
bool IsLasting(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

}  // namespace

WorkerService::WorkerService(ServiceOptions options, const Daemon::Parts& parts)
    : options_([&options] {
        if (!options.once) options.daemon.connect_timeout_ms = kDialMs;
        return std::move(options);
      }()),
      parts_(parts) {
  parts_.lives = &lives_;
}

absl::Status WorkerService::Serve(bool& welcomed) {
  DaemonOptions options = options_.daemon;
  // What is free changes from run to run.
  if (options.memory_bytes == 0) options.memory_bytes = AvailableMemoryBytes();
  Daemon daemon(std::move(options), parts_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stops_ > 0) return absl::OkStatus();
    daemon_ = &daemon;
  }
  absl::Status status = daemon.Run();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    daemon_ = nullptr;
  }
  welcomed = daemon.welcomed();
  return status;
}

absl::Status WorkerService::Run() {
  while (true) {
    bool welcomed = false;
    const absl::Status status = Serve(welcomed);
    TrimHeaps();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stops_ > 0) return absl::OkStatus();
    }
    if (options_.once) {
      // No seat for this worker: nobody waits for another run.
      if (!absl::IsResourceExhausted(status)) return status;
      return absl::FailedPreconditionError(status.message());
    }
    if (!welcomed && IsLasting(status)) return status;
    if (welcomed) tries_in_vain_ = 0;
    SayOnce(status.ok() ? "the run is over; waiting for the next one"
                        : absl::StrCat(status.message(), "; dialling again"));
    if (!Pause()) return absl::OkStatus();
  }
}

// A worker whose central is away for a night says so once.
void WorkerService::SayOnce(const std::string& line) {
  if (line == last_line_) return;
  last_line_ = line;
  parts_.logger->Log(Severity::kInfo, line);
}

bool WorkerService::Pause() {
  const int64_t pause_ms =
      std::min(kLongestPauseMs, kFirstPauseMs << std::min(tries_in_vain_++, 10));
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
