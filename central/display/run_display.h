#pragma once

// Everything that shows a running training: the terminal, the metrics and the page's state.

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "central/display/progress.h"
#include "central/display/run_figures.h"
#include "proto/base/clock.h"
#include "proto/base/metrics.h"
#include "proto/base/plan/processor_facts.h"

namespace runnel {

// The processors that a worker's backends compute on.
struct WorkerProcessors {
  std::string worker;
  std::vector<ProcessorFacts> processors;
};

// A run as it stands.
struct RunView {
  std::string model;
  ProgressState progress;
  Plan plan;
  std::vector<StageStatus> stages;
  int64_t training_ns = 0;
  int64_t plan_ns = 0;  // time since the plan came into force
  double samples_per_s = 0;
  PeriodComparison period = {};  // the last report's comparison
  std::vector<RecoverySummary> recoveries = {};
  ReplicationSummary replication = {};
  std::vector<StageSeconds> stage_seconds = {};  // by stage; empty: nothing is known
  std::vector<double> stage_joules_a_sample = {};
  std::vector<WorkerProcessors> processors = {};
};

class RunDisplay {
 public:
  // `out` is a file descriptor, -1 shows nothing there; `metrics` may be null. Both and the clock
  // are borrowed.
  RunDisplay(const ProgressOptions& options, int out, MetricsSink* metrics, const Clock* clock);

  // Called on the trainer's thread.
  void Update(const RunView& view);
  // Shows an evaluation of the weights after `step`; the run may be further.
  void Evaluation(const RunView& view, int64_t step, double accuracy, double loss);
  // Shows a transfer, as Progress::Transfer.
  void Transfer(const std::string& what, int64_t arrived_bytes, int64_t total_bytes);
  void Line(const std::string& text);
  // Clears the progress of a terminal, since somebody else is about to write a line there.
  void MakeWay();
  void Finish(const RunView& view);

  // Any thread: what admin_server.h's page draws.
  std::string StateJson() const;
  bool ready() const { return ready_; }

 private:
  void Write(const std::string& text);
  void Publish(const RunView& view);
  void PublishLink(size_t index, const LinkSummary& link);
  void PublishRecoveries(const std::vector<RecoverySummary>& recoveries);
  void PublishEnergy(const RunView& view, size_t stage, const StageSummary& figures);
  void PublishProcessors(const std::vector<WorkerProcessors>& workers);
  void PublishReplication(const ReplicationSummary& replication);
  void CountUp(const std::string& name, const MetricLabels& labels, double total);

  Progress progress_;
  int out_;
  MetricsSink* metrics_;
  const Clock* clock_;
  std::atomic<bool> ready_ = false;
  double accuracy_ = -1;
  std::deque<std::pair<int64_t, double>> losses_;
  std::vector<std::pair<std::string, double>> counted_;  // totals that the counters have
  std::vector<MetricLabels> processors_;  // processors that the metric shows as present
  mutable std::mutex mutex_;
  std::string state_json_ = "{}";  // guarded by mutex_
};

}  // namespace runnel
