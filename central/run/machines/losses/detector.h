#pragma once

// Finds out which workers are lost, and why, by the arrival times of their heartbeats. A worker may
// be silent for a limit that follows from its own rhythm (rhythm.h), at least kLeastSilenceNs.
// After that its data port is asked again and again by a TCP connect:
//
//   answer      meaning                                   verdict
//   refused     the host is there, the process is not     dead: lost at once
//   answered    the process is there and does not run     slow; after kStoppedNs more stopped: lost
//   no answer   the host or the route to it is gone       cut off: lost after kCutOffFactor limits,
//                                                         and not before its loss is cheaper than
//                                                         waiting on (loss_price.h)
//
// A refusal counts as no answer if the port was closed already when the worker joined (a phone
// behind a router, reached by way of central).
//
// Two more verdicts need no silence:
//
//   restarted   another process comes under the name of a silent one: the silent one is lost at once
//   stuck       the worker names a task, and the task's progress stands still for kStuckNs: lost
//
// A control connection that broke is a silence that begins to count at once. When this process
// itself did not run (it was stopped, its host slept), nobody is silent for that time.
//
// Pure: events in, effects out. Times are by central's clock. Workers are known by their control
// streams.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "central/run/machines/losses/loss_price.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"
#include "proto/base/rhythm.h"

namespace runnel {

class Detector {
 public:
  // Four heartbeats.
  static constexpr int64_t kLeastSilenceNs = 1'000'000'000;
  // Upper bound of the limit, however irregular a worker's heartbeats were.
  static constexpr int64_t kMostSilenceNs = 60'000'000'000;
  static constexpr double kCutOffFactor = 2.5;
  static constexpr int64_t kStoppedNs = 5'000'000'000;
  // A large action of a small device, a stage that is compiled: minutes are no reason.
  static constexpr int64_t kStuckNs = 300'000'000'000;
  // Between two looks at all workers, and two questions to one.
  static constexpr int64_t kTickNs = 100'000'000;
  // A tick that is late by this much shows that this process did not run.
  static constexpr int64_t kOwnStallNs = 500'000'000;
  // Stalls from this length on are logged.
  static constexpr int64_t kLongStallNs = 2'000'000'000;

  enum class Verdict : uint8_t { kDead, kStopped, kCutOff, kRestarted, kStuck };
  struct Finding {
    ConnectionId connection;
    Verdict verdict;
    std::string why;  // reason, for people
  };

  // What a loss costs now, for the events behind it.
  void SetPrice(const LossPrice& price) { price_ = price; }
  void AddHeartbeat(ConnectionId connection, const Heartbeat& heartbeat);
  // Takes the answer to a ProbePort; a finding if the worker is lost with it.
  std::optional<Finding> AddAnswer(ConnectionId connection, PortAnswer answer, int64_t now_ns);
  // The control connection broke, or there is another one for the same stream.
  void Break(ConnectionId connection, const absl::Status& why, const Roster& roster, int64_t now_ns,
             RunEffects& effects);
  void Resume(ConnectionId connection, int64_t now_ns, RunEffects& effects);
  // The timer that the last call asked for, and once in the beginning. Who is lost; the owner tells
  // the roster, and nothing more comes of these.
  std::vector<Finding> Tick(const Roster& roster, int64_t now_ns, RunEffects& effects);
  // A worker says hello: whether it is another process of one that takes part, and that one is lost
  // with it. A worker that is well is not lost because another one took its name.
  std::optional<Finding> Restarted(const Roster& roster, const WorkerHello& hello) const;
  // Whether the worker's port answered when it joined, or is not asked yet.
  bool IsDialable(ConnectionId connection) const;
  // Sum over all workers: a change shows that one of them got on.
  int64_t progress() const;

 private:
  struct Watched {
    std::string name;
    std::string data_address;
    int64_t heard_ns = 0;
    Rhythm heartbeats;
    Rhythm progresses;
    WorkerPhase phase = WorkerPhase::kIdle;
    int64_t progress = 0;
    int64_t progressed_ns = 0;
    std::string broken;          // why its control connection broke; empty: it stands
    bool is_asked = false;       // since it is silent
    bool is_waited_for = false;  // people were told so
    bool question_is_out = false;
    bool question_is_old = false;      // put before the silence: its answer says nothing of it
    std::optional<PortAnswer> usual;   // of its port, while it was well
    std::optional<PortAnswer> answer;  // the last one of this silence
  };

  static int64_t SilenceLimit(const Watched& watched);
  static bool IsSilent(const Watched& watched, int64_t now_ns);
  void Follow(const Roster& roster, int64_t now_ns, RunEffects& effects);
  // Forgives all silences of the time in which this process did not run.
  void Forgive(int64_t stall_ns, int64_t now_ns, RunEffects& effects);
  void Ask(ConnectionId connection, Watched& watched, int64_t now_ns, RunEffects& effects);
  static void Hear(Watched& watched, int64_t now_ns, RunEffects& effects);
  std::optional<Finding> Judge(ConnectionId connection, const Watched& watched,
                               int64_t now_ns) const;
  // When a worker that does not answer is lost, after it was last heard.
  int64_t CutOffNs(const Watched& watched) const;
  // Tells people why one that does not answer is not lost yet, once a silence.
  void TellThatWaits(Watched& watched, int64_t now_ns, RunEffects& effects) const;

  std::map<ConnectionId, Watched> watched_;
  LossPrice price_;
  int64_t due_ns_ = 0;  // the next tick; 0: there was none
  int64_t now_ns_ = 0;  // the last tick
};

}  // namespace runnel
