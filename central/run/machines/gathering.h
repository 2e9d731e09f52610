#pragma once

// The time before the first plan, and a recovery that has no plan. A run that does not need all its
// workers begins some seconds after the least number is there; the others join at barriers. A worker
// that is lost before the first plan costs no more than what was measured of it: the run goes on with
// the others. Where they are too few, or no plan fits them, others are waited for.
//
// Pure: events in, effects out. Times are by central's clock.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "central/run/machines/losses/start_attempts.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"

namespace runnel {

class Gathering {
 public:
  // Once the least number is there, the others have so long to take part from the beginning.
  static constexpr int64_t kGraceNs = 5'000'000'000;

  // patience_ns: how long workers are waited for.
  explicit Gathering(int64_t patience_ns) : patience_ns_(patience_ns) {}

  // While workers are missing: whether the run begins with those that are there.
  bool Begins(const Roster& roster, int64_t now_ns);
  // A worker was lost after all had joined, and before the first plan. Errors as StartAgain.
  absl::Status Lose(int device, const absl::Status& why, const Roster& roster, RunEffects& effects);
  // A worker of this host has ended. Unavailable: starting it again is no remedy.
  absl::Status StartAgain(const std::string& name, const absl::Status& why, RunEffects& effects);
  // The next plan waits for workers. why: no plan fits those that are there; OK: they are too few.
  void Wait(absl::Status why, const Roster& roster, RunEffects& effects);
  void StopWaiting() {
    waits_ = false;
    waits_ns_.reset();
  }
  bool waits() const { return waits_; }
  // What ends a run that has waited for as long as workers are waited for: `why`, or
  // DeadlineExceeded. OK: it waits on, or does not wait.
  absl::Status CheckPatience(const Roster& roster, int64_t now_ns);

 private:
  int64_t patience_ns_;
  std::optional<int64_t> enough_ns_;  // since when the least number is there
  bool waits_ = false;
  absl::Status why_;                 // beside too few workers
  std::optional<int64_t> waits_ns_;  // since when, at the first tick
  StartAttempts starts_;
};

}  // namespace runnel
