#pragma once

// Measures the paths between central's host and the workers on other hosts: before the first plan
// all of them, and at a barrier those that no stage uses and a new plan would.
//
//   pings   to all workers at once, a few bytes each: the smallest of several round trips is the
//           path's delay, there and back
//   trains  (probe_train.h) one worker after the other, so that no two share a link: one train each
//           way, and a longer one on a way that passed it in no time
//
//   media   (medium_probe.h) trains on several ways at once; before the first plan
//
// After kMostNs no further worker is begun with: plans guess what is not known of its path.
//
// Pure: events in, effects out. The pieces carry when they arrived, by central's clock.

#include <cstdint>
#include <optional>
#include <vector>

#include "central/planning/barrier_report.h"
#include "central/run/machines/measuring/medium_probe.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"
#include "proto/transport/control/probe_train.h"

namespace runnel {

class LinkProbe {
 public:
  static constexpr int kPings = 6;
  // A ping and its answer, each way: the message, and the headers of its packet.
  static constexpr double kPingBytes = 120;
  // More than a token bucket lets pass at once; a link of 0.25 Mbps takes two seconds for it.
  static constexpr int64_t kFirstBytes = 64 * 1024;
  static constexpr int64_t kMostBytes = 512 * 1024;
  // A train that took less is too short to tell a rate from.
  static constexpr int64_t kLongEnoughNs = 100'000'000;
  static constexpr int64_t kWantedNs = 250'000'000;
  static constexpr int64_t kMostNs = 8'000'000'000;

  enum class Media : uint8_t { kFind, kAsKnown };

  // Probes the paths to these devices of the roster, none of them local. What was measured of the
  // others stays.
  void Begin(std::vector<int> devices, Media media, const Roster& roster, RunEffects& effects);
  // The device has left: its path keeps the figures that it had.
  void Skip(int device, const Roster& roster, RunEffects& effects);
  // Another device has its number: nothing is known of the path to it.
  void Forget(int device);
  // Stops waiting for probes under way.
  void Cancel();
  // Takes a device's measurement of its way and of its trains. Ignored if it was not asked for.
  void AddReport(int device, const WayMeasured& measured, const Roster& roster,
                 RunEffects& effects);
  void AddPiece(int device, const ProbePiece& piece, const Roster& roster, RunEffects& effects);

  bool under_way() const { return !pinged_.empty() || !awaited_.empty() || media_.under_way(); }
  // Workers that are done, of so many.
  size_t done() const { return asked_ - awaited_.size(); }
  size_t asked() const { return asked_; }
  // Figures by device number; without a rate: a local device, or a path too fast to measure.
  const std::vector<PathFigures>& paths() const {
    return media_.paths().empty() ? paths_ : media_.paths();
  }

 private:
  // The trains that are under way, between central and the first of awaited_.
  struct Exchange {
    int64_t down_bytes = 0;  // 0: that way needs no train
    int64_t up_bytes = 0;
    bool is_second = false;
  };
  struct Pings {
    int answered = 0;
    int64_t last_ns = 0;  // when the last answer came
    std::optional<int64_t> least_ns;
  };

  void AddPing(int device, int64_t arrived_ns, const Roster& roster, RunEffects& effects);
  void Exchanged(const Roster& roster, RunEffects& effects);
  void SendTrain(const Exchange& exchange, const Roster& roster, RunEffects& effects);
  void BeginNext(const Roster& roster, RunEffects& effects);
  void Finish(int device, bool has_rates);

  bool finds_media_ = true;
  size_t asked_ = 0;
  std::vector<int> pinged_;   // answers of these are still to come
  std::vector<int> awaited_;  // trains to these are still to come; the first one's are under way
  std::vector<Pings> pings_;  // by device
  Exchange exchange_;
  WayMeasured down_;
  WayMeasured up_;
  ProbeReceiver receiver_;
  std::optional<int64_t> began_ns_;  // when the first answer came
  int64_t now_ns_ = 0;
  std::vector<PathFigures> paths_;
  MediumProbe media_;  // once all trains are through
};

}  // namespace runnel
