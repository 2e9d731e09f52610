#pragma once

// Times of a run's devices, corrected by the measured times of their stages. AccEPT 3.2 and 3.5:
// |measured - predicted| > epsilon means that a device has changed. FTPipeHD: the capacity ratio of
// a worker is measured over profiled time of its layers.
//
// Without a predictor, one ratio corrects all layers of a device's profile. With a predictor:
//   * a time within epsilon is learned from, and there is no ratio;
//   * a time that is off by more gives a ratio at once, and after `confirmations` such reports the
//     device counts as changed: its representative sub-models should be measured again;
//   * a difference that the new measurement does not explain (for example a neighbour that computes
//     only while the pipeline runs) stays a ratio.
//
// A device without a stage says nothing. What it was slow by is forgotten little by little, so that
// it is tried again.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "central/planning/barrier_report.h"
#include "central/planning/measured/measured_cluster.h"
#include "central/planning/measured/stage_pace.h"
#include "predictor/run/run_predictor.h"

namespace runnel {

// Time of a stage that makes its layers again in the backward over that of its layers: of three
// passes four.
inline constexpr double kRecomputeTime = 4.0 / 3;

struct CorrectionOptions {
  // Borrowed; it knows every device of the run. Null: the times of a report are a profile.
  RunPredictor* predictor = nullptr;
  // FTPipeHD: the first device's profile is that of every device, and its own ratio stays 1.
  bool by_first_device = false;
  int confirmations = 2;          // reports in a row that must be off
  int64_t min_micro_batches = 5;  // a stage that did fewer since the last report says nothing
  // Cost of measuring a device's representatives again: runs of each, and a fixed part.
  int64_t measured_runs = 11;
  double fixed_measure_seconds = 2;
  // share of an idle device's deviation that is forgotten at each report
  double forgotten_share = 0.1;
};

// Deterministic. One thread.
class DeviceCorrections {
 public:
  explicit DeviceCorrections(const CorrectionOptions& options) : options_(options) {}

  // Compares every stage's time since the last report with the known time of its device. A second
  // report of the same step changes nothing. False: a stage did too little, or nothing was
  // profiled. cluster: says which devices wait for one another's processors.
  bool Observe(const BarrierReport& report, const MeasuredCluster& cluster);

  // Devices that should be measured again. None without a predictor.
  std::vector<int> ChangedDevices() const;
  // Time of measuring a device again; the pipeline stands meanwhile.
  double MeasurementSeconds(int device, const BarrierReport& report) const;
  // The changed devices have been measured again, or could not be: none counts as changed any more.
  void FinishMeasurement();
  // These have no stage and have been measured by themselves: nothing is left to forget.
  void Remeasured(const std::vector<int>& devices);

  // Times by device number: those of the report, or of the predictor, times the ratio.
  std::vector<DeviceTimes> CorrectedTimes(const BarrierReport& report) const;
  // Measured over profiled (or predicted) time, by device number, after the last report.
  const std::vector<double>& ratios() const { return ratios_; }
  // A line for people with the devices whose ratio shows an error of the predictor; empty: none.
  std::string RatioText(const BarrierReport& report) const;

 private:
  // Comparison of a device's reports with its predictor.
  struct Comparison {
    double unexplained_ratio = 1;  // ratio that the last measurement did not explain
    int reports_off = 0;
    int patience = 1;  // doubled whenever measuring again explained nothing
  };

  bool CompareStages(const BarrierReport& report, const MeasuredCluster& cluster);
  const DeviceTimes& ProfileOf(size_t device, const BarrierReport& report) const;
  void ForgetIdleDevices(const Plan& plan);
  void CompareWithPredictor(int device, const Observation& now);

  CorrectionOptions options_;
  Generation generation_;         // generation of the plan that paces_ is about
  std::vector<StagePace> paces_;  // by stage
  std::optional<int64_t> observed_step_;
  bool is_enough_ = false;  // Observe's answer at observed_step_
  std::vector<double> ratios_;
  std::vector<Comparison> comparisons_;  // by device
  std::map<int, Observation> changed_;   // times of a changed device at the last report
};

}  // namespace runnel
