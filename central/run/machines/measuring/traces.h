#pragma once

// Asks all devices for what they do within a window (TraceRequest), and puts their answers on
// central's clock. Pure: events in, effects out.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/records/run_trace.h"
#include "central/run/machines/active_plan.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"

namespace runnel {

// How far a worker's clock is ahead of central's: the least of what its last heartbeats took by
// both clocks. Too large by the shortest of their ways, some tenths of a millisecond in a LAN.
class ClockOffset {
 public:
  void Add(const Heartbeat& heartbeat);
  // Nanoseconds to add to the worker's clock; none: it has not said what its clock shows.
  std::optional<int64_t> ns() const;

 private:
  static constexpr size_t kKept = 16;  // four seconds of heartbeats
  std::array<int64_t, kKept> offsets_ns_ = {};
  int64_t count_ = 0;
};

class Traces {
 public:
  // Longest wait for an answer behind the window: on a slow link it takes its time.
  static constexpr int64_t kGraceNs = 10'000'000'000;

  void AddHeartbeat(ConnectionId connection, const Heartbeat& heartbeat) {
    offsets_[connection].Add(heartbeat);
  }
  // The connection is no more.
  void Forget(ConnectionId connection) { offsets_.erase(connection); }
  // A window begins. FailedPrecondition: another one is under way, or nobody has a stage.
  absl::Status Begin(int64_t now_ns, int64_t window_ns, int64_t step, const ActivePlan& active,
                     const Roster& roster, RunEffects& effects);
  void Add(int device, ConnectionId connection, const TraceReport& report);
  // The last window's trace, once all have answered or the grace is over; none: not yet.
  // NotFound: no window was begun.
  absl::StatusOr<std::optional<RunTrace>> Take(int64_t now_ns) const;

 private:
  bool IsDone(int64_t now_ns) const;

  std::map<ConnectionId, ClockOffset> offsets_;
  std::optional<RunTrace> trace_;
  int64_t id_ = 0;              // the window's
  std::map<int, size_t> rows_;  // in the trace, by device number
};

}  // namespace runnel
