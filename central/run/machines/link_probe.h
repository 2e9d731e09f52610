#pragma once

// Measures the paths between central's host and the workers on other hosts, before the first plan:
// one worker after the other, so that no two trains share a link. Central sends a train of pieces
// (probe_train.h); the worker tells what it measured and sends a train back. Trains that pass in
// no time are followed by one longer train.
//
// Pure: events in, effects out. The pieces carry when they arrived.

#include <cstdint>
#include <vector>

#include "central/planning/barrier_report.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"
#include "proto/transport/control/probe_train.h"

namespace runnel {

class LinkProbe {
 public:
  // Beyond what a token bucket lets pass at once; a link of 0.25 Mbps takes two seconds for it.
  static constexpr int64_t kFirstBytes = 64 * 1024;
  static constexpr int64_t kMostBytes = 512 * 1024;
  // A train that took less is too short to tell a rate from.
  static constexpr int64_t kLongEnoughNs = 100'000'000;
  static constexpr int64_t kWantedNs = 250'000'000;

  // Probes the paths to the roster's workers that are not local.
  void Begin(const Roster& roster, RunEffects& effects);
  // What the device measured, and what it sends. Others than the one that is asked are ignored.
  void AddReport(int device, const WayMeasured& measured);
  void AddPiece(int device, const ProbePiece& piece, const Roster& roster, RunEffects& effects);

  bool under_way() const { return !awaited_.empty(); }
  // Workers that are done, of so many.
  size_t done() const { return asked_ - awaited_.size(); }
  size_t asked() const { return asked_; }
  // By device number; not set: local, or faster than can be measured.
  const std::vector<PathRates>& rates() const { return rates_; }

 private:
  void SendTrain(int64_t bytes, const Roster& roster, RunEffects& effects);

  size_t asked_ = 0;
  std::vector<int> awaited_;  // the first one is being probed
  bool is_second_ = false;    // train of this device
  WayMeasured down_;
  ProbeReceiver up_;
  std::vector<PathRates> rates_;
};

}  // namespace runnel
