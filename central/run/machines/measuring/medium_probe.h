#pragma once

// Finds media that several paths share, as all stations of a radio do: trains on ways at once, each
// as long as a quarter of a second by itself. Of a way,
//   share = (rate beside the others) / (rate alone)
// The shares of ways that have nothing in common are 1 each; those of ways on one medium sum up
// to 1.
//
//   1. down to all workers at once
//   2. where that says that some share something: each of them beside the first, until all are in
//      groups
//   3. a ping to the worker of each group that will send, and when all are answered both ways at
//      once, down to one worker of each group and up from another
//
// In round 3 the queue in front of a radio may let the train down pass first as a whole. Then the
// rate of neither says anything, but the train up arrives late: its share also counts from when it
// was asked for.
//
// Pure: events in, effects out.

#include <cstdint>
#include <optional>
#include <vector>

#include "central/planning/barrier_report.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"
#include "proto/transport/control/probe_train.h"

namespace runnel {

class MediumProbe {
 public:
  // Shares of two ways that sum up to less are of one medium.
  static constexpr double kShared = 1.4;
  // A faster path is no bottleneck of a plan, and the hosts' processors would share it.
  static constexpr double kMostMbps = 200;
  static constexpr double kTrainSeconds = 0.25;
  static constexpr int64_t kLeastBytes = 40 * 1024;
  static constexpr int64_t kMostBytes = 512 * 1024;

  // Paths whose rates are known both ways are probed; the others have nothing to compare with.
  void Begin(std::vector<PathFigures> paths, const Roster& roster, RunEffects& effects);
  void AddReport(int device, const WayMeasured& measured, const Roster& roster,
                 RunEffects& effects);
  void AddPiece(int device, const ProbePiece& piece, const Roster& roster, RunEffects& effects);

  // Another device has its number.
  void Forget(int device) {
    if (static_cast<size_t>(device) < paths_.size()) paths_[static_cast<size_t>(device)] = {};
  }

  bool under_way() const { return !flows_.empty(); }
  // The paths with their media.
  const std::vector<PathFigures>& paths() const { return paths_; }

 private:
  enum class Round : uint8_t { kAllDown, kPair, kPings, kBothWays };
  // A train.
  struct Flow {
    int device = 0;
    bool is_up = false;
    size_t group = 0;             // kBothWays: of which both flows are
    std::optional<double> share;  // none: under way
  };
  // Devices whose paths share a medium, or one by itself.
  using Group = std::vector<int>;

  void Send(Round round, std::vector<Flow> flows, const Roster& roster, RunEffects& effects);
  void AddPing(int device, int64_t arrived_ns, const Roster& roster, RunEffects& effects);
  double ShareOf(const Flow& flow, double bytes_per_second) const;
  double ShareSinceAsked(const Flow& flow, int64_t arrived_ns) const;
  void EndFlow(Flow& flow, double share, const Roster& roster, RunEffects& effects);
  Flow* FlowOf(int device, bool is_up);
  int64_t BytesOf(const Flow& flow) const;
  void EndRound(const Roster& roster, RunEffects& effects);
  void GroupNext(const Roster& roster, RunEffects& effects);
  void BeginBothWays(const Roster& roster, RunEffects& effects);
  void SetMedia(const std::vector<Flow>& flows);
  LinkRate AloneRate(int device, bool is_up) const;

  std::vector<PathFigures> paths_;
  Round round_ = Round::kAllDown;
  std::vector<Flow> flows_;      // flows of the round; kPings: those up
  std::vector<Flow> both_ways_;  // flows of the round after the pings
  int64_t asked_ns_ = 0;         // kBothWays: when trains up were asked for
  std::vector<Group> groups_;
  std::vector<int> ungrouped_;   // share something; the last group's first one was not compared yet
  std::vector<int> rest_;        // compared with the last group's first one, and not of it
  std::vector<int> unreported_;  // by device: reports to come that say nothing
  std::vector<ProbeReceiver> received_;  // by device
};

}  // namespace runnel
