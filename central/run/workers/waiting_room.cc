#include "central/run/workers/waiting_room.h"

#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "central/run/machines/active_plan.h"
#include "central/run/machines/roster_facts.h"
#include "proto/base/status_macros.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

// A run that was made way for has the port before.
constexpr int64_t kAwayMs = 2'000;
constexpr int64_t kNextTryMs = 250;

RosterOptions RoomOptions(const std::string& listen) {
  RosterOptions options;
  options.is_waiting_room = true;
  options.loopback_only = IsLoopbackAddress(listen);
  options.recipe = "fp32";  // which every worker has
  return options;
}

}  // namespace

absl::Status WaitingRoom::Run() {
  while (true) {
    const absl::Status status = Open();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stopped_) return absl::OkStatus();
    }
    const bool is_taken = was_open_ && absl::IsAlreadyExists(status);
    if (!status.ok() && !is_taken) return status;
    if (!Pause(is_taken ? kNextTryMs : kAwayMs)) return absl::OkStatus();
  }
}

absl::Status WaitingRoom::Open() {
  ThreadLoop loop(parts_.clock);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) return absl::OkStatus();
    roster_ = std::make_unique<Roster>(RoomOptions(listen_));
    loop_ = &loop;
  }
  absl::StatusOr<std::unique_ptr<CentralControl>> server = parts_.control->Listen(listen_, this);
  absl::Status status = server.status();
  std::shared_ptr<void> shown;
  if (server.ok()) {
    server_ = *std::move(server);
    listen_ = server_->address();
    absl::StatusOr<std::shared_ptr<void>> show = parts_.show(listen_);
    if (show.ok()) shown = *std::move(show);
    status = show.status();
    if (status.ok()) status = Begin(!std::exchange(was_open_, true));
    if (status.ok()) loop.Run();
    RunEffects effects;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!stopped_) roster_->ReleaseAll(effects);  // to the run that begins
    }
    CarryOut(effects);
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    loop_ = nullptr;
    roster_.reset();
  }
  // Before the run has the control port, so that its door is where it always is.
  if (parts_.enrolment.close_door != nullptr) parts_.enrolment.close_door();
  server_.reset();
  return status;
}

absl::Status WaitingRoom::Begin(bool is_first) {
  // Opens the door for devices without a certificate, each time.
  RUNNEL_ASSIGN_OR_RETURN(const auto commands, JoinCommands(parts_.enrolment, listen_));
  if (!is_first) {
    parts_.print(absl::StrCat("open again at ", listen_));
    return absl::OkStatus();
  }
  parts_.print(absl::StrCat("waiting for workers: ", HowToJoin(commands)));
  parts_.print(
      "who is here: runnel-central devices; a run with them: runnel-central train --workers N");
  return absl::OkStatus();
}

void WaitingRoom::Enter(ConnectionId id, const WorkerHello& hello) {
  RunEffects effects;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (roster_ == nullptr) return;
    // It was started again, and nobody has noticed that its earlier stream is dead.
    if (const auto old = roster_->StreamOf(hello); old.has_value()) {
      effects.push_back(CloseControl{*old});
      roster_->Leave(*old, effects);
    }
    // Nothing here is local, so that there is no error.
    roster_->Join(id, hello, /*local=*/false, effects).IgnoreError();
  }
  CarryOut(effects);
}

void WaitingRoom::OnMessage(ConnectionId id, WorkerMessage message) {
  const auto* hello = std::get_if<WorkerHello>(&message);
  if (hello == nullptr) return;
  Post([this, id, hello = *hello] { Enter(id, hello); });
}

void WaitingRoom::OnGone(ConnectionId id, const absl::Status&) {
  Post([this, id] {
    RunEffects effects;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (roster_ != nullptr) roster_->Leave(id, effects);
    }
    CarryOut(effects);
  });
}

void WaitingRoom::CarryOut(const RunEffects& effects) {
  for (const RunEffect& effect : effects) {
    if (const auto* send = std::get_if<SendControl>(&effect)) {
      server_->Send(send->connection, send->message).IgnoreError();
    } else if (const auto* close = std::get_if<CloseControl>(&effect)) {
      server_->Close(close->connection);
    } else if (const auto* line = std::get_if<LogLine>(&effect)) {
      parts_.logger->Log(line->severity, line->text);
    }
  }
}

void WaitingRoom::Post(EventLoop::Task task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (loop_ != nullptr) loop_->Post(std::move(task));
}

bool WaitingRoom::Pause(int64_t pause_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  return !stopping_.wait_for(lock, std::chrono::milliseconds(pause_ms),
                             [this] { return stopped_; });
}

void WaitingRoom::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  stopping_.notify_all();
  if (loop_ != nullptr) loop_->Stop();
}

absl::StatusOr<MemberList> WaitingRoom::Members() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (roster_ == nullptr) return absl::UnavailableError("a run begins");
  return MembersOf(*roster_, ActivePlan(), MemberList::kNoRun, /*paused=*/false);
}

absl::Status WaitingRoom::GiveWay() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (loop_ == nullptr) return absl::UnavailableError("a run begins");
  loop_->Stop();
  return absl::OkStatus();
}

}  // namespace runnel
