#pragma once

// A running training as metrics. Those of stages and links are the rows of FigureFields.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "central/display/run_view.h"
#include "central/records/shown_figures.h"
#include "proto/base/metrics.h"

namespace runnel {

// One thread.
class RunMetrics {
 public:
  // Borrowed; null: nobody wants any.
  explicit RunMetrics(MetricsSink* metrics) : metrics_(metrics) {}

  void Publish(const RunView& view, const RunFigures& figures);
  void Evaluation(double accuracy, double loss);

 private:
  struct Metric {
    const char* name;
    const char* help;
  };
  void Set(const Metric& metric, const MetricLabels& labels, double value);
  // A counter that follows a total which somebody else adds up.
  void CountUp(const Metric& metric, const MetricLabels& labels, double total);
  void PublishFigure(const ShownFigure& figure, MetricLabels labels);
  void PublishStages(const RunView& view, const RunFigures& figures);
  void PublishRecoveries(const std::vector<RecoverySummary>& recoveries);
  void PublishProcessors(const std::vector<WorkerProcessors>& workers);
  void PublishReplication(const ReplicationSummary& replication);

  MetricsSink* metrics_;
  std::set<std::string> described_;
  std::vector<std::pair<std::string, double>> counted_;  // totals that the counters have
  std::vector<MetricLabels> processors_;                 // that are shown as there
};

}  // namespace runnel
