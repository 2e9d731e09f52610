#include "central/cli/current_run.h"

#include <unistd.h>

#include <csignal>
#include <utility>

namespace runnel {
namespace {

absl::Status NoRun() { return absl::UnavailableError("no run is under way"); }

void Say(absl::string_view text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nobody reads it
}

}  // namespace

void CurrentRun::SetTrainer(Trainer* trainer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  trainer_ = trainer;
}

void CurrentRun::SetRoom(WaitingRoom* room) {
  const std::lock_guard<std::mutex> lock(mutex_);
  room_ = room;
}

void CurrentRun::OnSignal(int caught, int signal) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Nothing to bring to a barrier, or asked twice. Local workers die with us
  // (PR_SET_PDEATHSIG).
  if (exit_code_.has_value()) _exit(*exit_code_);
  if (room_ != nullptr && caught == 1) return room_->Stop();
  const int stops_at = is_asked_ ? 2 : 1;
  if (trainer_ == nullptr || caught > stops_at) _exit(kExitInterrupted);
  const bool can_ask = signal == SIGINT && isatty(STDIN_FILENO) == 1;
  if (caught == 1 && can_ask && trainer_->LosesWeights()) {
    is_asked_ = true;
    return Say(
        "\nstopping loses the weights: there is no --checkpoint-dir. Once more stops at the "
        "next barrier; else training goes on\n");
  }
  Say("\nstopping: training at the next barrier, an evaluation now; once more ends at once\n");
  trainer_->StopAtBarrier();
}

void CurrentRun::Done(int exit_code) {
  const std::lock_guard<std::mutex> lock(mutex_);
  exit_code_ = exit_code;
}

absl::StatusOr<MemberList> CurrentRun::Members() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (room_ != nullptr) return room_->Members();
  if (trainer_ != nullptr) return trainer_->Members();
  return NoRun();
}

absl::Status CurrentRun::Drain(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return trainer_ == nullptr ? NoRun() : trainer_->Drain(name);
}

absl::Status CurrentRun::Pause(bool paused) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return trainer_ == nullptr ? NoRun() : trainer_->Pause(paused);
}

absl::Status CurrentRun::GiveWay() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return room_ == nullptr ? absl::UnavailableError("this central does not wait for a run")
                          : room_->GiveWay();
}

absl::Status CurrentRun::Stop(bool is_sure) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (trainer_ == nullptr) return NoRun();
  if (!is_sure && trainer_->LosesWeights()) {
    return absl::FailedPreconditionError(
        "stopping loses the weights: there is no --checkpoint-dir. Training goes on; once more on "
        "the "
        "page, or runnel-central stop --sure, ends it at the next barrier");
  }
  trainer_->StopAtBarrier();
  return absl::OkStatus();
}

absl::Status CurrentRun::Replan() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return trainer_ == nullptr ? NoRun() : trainer_->Replan();
}

absl::StatusOr<std::string> CurrentRun::Trace(int64_t window_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (trainer_ == nullptr) return NoRun();
  return trainer_->Trace(window_ms);
}

absl::StatusOr<std::string> CurrentRun::WhatIf(const std::string& assumption) {
  // Searched for beside the run, and where a signal is not held up.
  absl::StatusOr<Planner::LateAnswer> answer = NoRun();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (trainer_ != nullptr) answer = trainer_->WhatIf(assumption);
  }
  return answer.ok() ? (*answer)() : answer.status();
}

MemberCalls CurrentRun::Calls(std::function<absl::StatusOr<std::string>()> state) {
  return {[this] { return Members(); },
          [this](const std::string& name) { return Drain(name); },
          [this](bool paused) { return Pause(paused); },
          std::move(state),
          [this] { return GiveWay(); },
          [this](const std::string& assumption) { return WhatIf(assumption); },
          [this](int64_t window_ms) { return Trace(window_ms); },
          [this](bool is_sure) { return Stop(is_sure); },
          [this] { return Replan(); }};
}

}  // namespace runnel
