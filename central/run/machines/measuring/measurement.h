#pragma once

// Measures devices: before the first plan, and again at a barrier those that are not what they
// were. Two ways:
//
//   sub-models  one device after the other, some ranges of layers each: the predictor characterises
//               a device as it is by itself. Of devices that are alike (WorkerHello::device_class)
//               only the first is measured so; the others are checked on one range, those of
//               different hosts at once, and take its times, scaled, unless they show others
//   layers      all hosts at once, each layer by itself, then parts of the model
//   (layer_profile.h):
//               that is how they train, and devices that share a cache or memory are planned with
//               what that leaves to each. Of central's host as many at once as have a processor
//               each: plans share those (DeviceCost::host), and computing in turns on one takes
//               time that depends on who else does. Parts are measured when all devices have
//               their layers, for about the same time on each, so that no device has the machine to
//               itself before the others are done. Workers on central's host that are alike take
//               the mean of their first times: what differs between them is chance, and a plan that
//               gives each of them the layers on which it was lucky promises too much. Before the
//               first plan all of them measure once more, now at the same time (second_times.h).
//
// Pure: events in, effects out.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/planning/measured/layer_profile.h"
#include "central/planning/planner.h"
#include "central/run/machines/measuring/second_times.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"
#include "proto/base/plan/device_times.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

struct MeasurementOptions {
  // Common part of all requests: model, backend, micro_batch_size, repetitions and burst_ms, which
  // should exceed the period of a processor quota.
  ProfileRequest request;
  std::vector<LayerRange> sub_models;  // empty: by layers
  // How long the parts of a device are measured, all of them together, times the number of devices
  // that measure at the same time: on central's host, or on the other host that has most. But a part
  // no shorter than burst_ms.
  double part_ms = 75;
  // Stages keep several micro-batches in flight, and so are parts measured. A stage that
  // accumulates gradients drains each step: fewer may be in flight.
  bool pipelined = true;
  // Of devices on central's host, by layers; 0: all.
  int64_t local_at_once = 0;
  // Duration of one measurement of those devices' second times; 0: there are none.
  double second_burst_ms = 0;
};

class Measurement {
 public:
  // How far a check may be from what a device of the same class took.
  static constexpr double kAlike = 1.25;

  // planner: makes a device's times from those of its sub-models; borrowed.
  Measurement(MeasurementOptions options, Planner* planner)
      : options_(std::move(options)), planner_(planner) {}

  // Measures these devices of the roster, at barrier `step` of the plan of this generation (0: no
  // plan yet). Not while it is under way. A device's first measurement may be answered from an
  // earlier run.
  void Begin(std::vector<int> devices, int64_t step, Generation generation, const Roster& roster,
             RunEffects& effects);
  // What is under way is not waited for; what was known of the devices stays.
  void Cancel() { to_answer_ = {}; }
  // False: the device was not asked, or for another measurement. Internal: what it answered is not
  // what it was asked for; others as Planner::Characterise.
  absl::StatusOr<bool> AddReport(int device, const ProfileReport& report, const Roster& roster,
                                 RunEffects& effects);
  // The device cannot measure: the others go on without it, and its earlier figures stay. False: it
  // was not asked.
  bool SkipDevice(int device, const Roster& roster, RunEffects& effects);
  // Whether an answer belongs to the current measurement.
  bool IsAbout(Generation generation) const { return generation == generation_; }

  // Devices are measured a second time: what they answer changes their times and nothing else that
  // is known of them.
  bool is_second() const { return phase_ == Phase::kSecond; }

  // Whether it is asked now.
  bool IsAsked(int device) const { return to_answer_.IsAsked(device); }
  // The device has done this share of its request, [0, 1].
  void AddProgress(int device, double share);

  // Devices are still to answer.
  bool under_way() const { return to_answer_.size() > 0; }
  // Devices that measure, or have.
  size_t asked() const { return done_ + to_answer_.size(); }
  // Since Begin, of all devices together, [0, 1].
  double Progress() const;
  // Numbers of devices that answered from an earlier run; the others measured.
  const std::vector<int>& kept() const { return kept_; }
  // Times by device number, as last measured or predicted; empty: no device was measured.
  const std::vector<DeviceTimes>& times() const { return times_; }

 private:
  enum class Phase : uint8_t { kLayers, kParts, kSecond };
  // How a device measured last.
  struct Conditions {
    double processor_share = 0;  // of its thread
    std::string backend;
  };
  // Devices that are still to answer.
  struct ToAnswer {
    std::vector<int> measured;
    std::set<int> asked;        // of those: in turns the first one
    std::vector<int> to_check;  // in turns, when nobody is measured any more
    std::set<int> checked;      // are asked

    size_t size() const { return measured.size() + to_check.size() + checked.size(); }
    bool IsAsked(int device) const { return checked.contains(device) || asked.contains(device); }
    // The device has answered.
    void Remove(int device) {
      asked.erase(device);
      if (checked.erase(device) == 0) std::erase(measured, device);
    }
  };

  bool in_turns() const { return !options_.sub_models.empty(); }
  // A device of the same class that was measured, and is not this one.
  std::optional<int> ExampleOf(int device, const Roster& roster) const;
  // The range on which devices like this one are checked: an index into its sub-models.
  size_t LongestOf(int example) const;
  void SendInTurns(const Roster& roster, RunEffects& effects);
  absl::Status AddCheck(int device, double seconds, const Roster& roster, RunEffects& effects);
  int layers() const { return options_.request.model.layer_count(); }
  int devices() const { return static_cast<int>(times_.size()); }
  std::vector<LayerRange> Parts() const { return PartsOf(layers(), devices()); }
  std::vector<LayerRange> RangesToMeasure(int device) const;
  ProfileRequest MakeRequest(int device, const Roster& roster) const;
  void SendRequests(const Roster& roster, RunEffects& effects);
  absl::Status CheckReport(int device, const ProfileReport& report) const;
  absl::Status UpdateTimes(int device, const std::vector<double>& seconds, const Roster& roster,
                           RunEffects& effects);
  void GoOnWithout(int device, const Roster& roster, RunEffects& effects);
  // New devices of central's host that have times and are not barred, those together that are
  // alike.
  std::vector<std::vector<int>> AlikeLocals(const Roster& roster) const;
  // Gives them the mean of their times.
  void AverageAlike(const Roster& roster);
  void BeginSecond(const Roster& roster, RunEffects& effects);
  // Scales their times by what the second ones have shown.
  void TakeSecond(const Roster& roster);
  // A share of a processor as the worker and the plan see it.
  double ShareOf(int device) const;

  MeasurementOptions options_;
  Planner* planner_;
  int64_t step_ = 0;              // barrier at which is measured
  Generation generation_;         // of the plan that holds there
  bool is_first_ = true;          // nothing was measured before
  std::set<int> new_;             // devices of which nothing was
  Phase phase_ = Phase::kLayers;  // a phase begins when all devices have answered
  ToAnswer to_answer_;
  int64_t at_once_ = 0;  // devices on central's host that measure at the same time
  std::map<int, std::vector<double>> sub_model_seconds_;  // by device, as last measured
  std::vector<int> answered_;                             // for their layers
  size_t done_ = 0;             // devices that have answered for what is measured now
  std::vector<double> shares_;  // by device: done of what it measures now
  std::map<int, Conditions> conditions_;
  SecondTimes second_;
  std::vector<int> kept_;
  std::vector<DeviceTimes> times_;
};

}  // namespace runnel
