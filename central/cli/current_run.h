#pragma once

// What signals and an operator's orders are about: the run or the waiting room of this program.

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/run/trainer.h"
#include "central/run/workers/waiting_room.h"
#include "proto/transport/control/members.h"

namespace runnel {

constexpr int kExitInterrupted = 130;

// Ctrl-C is a stop at the next barrier, one more an immediate end. On a terminal the first one of a
// run whose weights would be lost asks. Any thread.
class CurrentRun {
 public:
  // Null: there is none (any more).
  void SetTrainer(Trainer* trainer);
  void SetRoom(WaitingRoom* room);

  // caught: how many signals there were, with this one.
  void OnSignal(int caught, int signal);
  // All is done: a signal ends the process as it would end by itself.
  void Done(int exit_code);

  // state: of what the display shows.
  MemberCalls Calls(std::function<absl::StatusOr<std::string>()> state);

 private:
  absl::StatusOr<MemberList> Members();
  absl::Status Drain(const std::string& name);
  absl::Status Pause(bool paused);
  absl::Status GiveWay();
  absl::Status Stop(bool is_sure);
  absl::Status Replan();
  absl::StatusOr<std::string> Trace(int64_t window_ms);
  absl::StatusOr<std::string> WhatIf(const std::string& assumption);

  std::mutex mutex_;
  Trainer* trainer_ = nullptr;    // guarded by mutex_
  WaitingRoom* room_ = nullptr;   // guarded by mutex_
  bool is_asked_ = false;         // guarded by mutex_
  std::optional<int> exit_code_;  // guarded by mutex_; none: not done
};

}  // namespace runnel
