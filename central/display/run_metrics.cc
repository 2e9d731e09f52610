#include "central/display/run_metrics.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace runnel {

void RunMetrics::Set(const Metric& metric, const MetricLabels& labels, double value) {
  if (described_.insert(metric.name).second) metrics_->Describe(metric.name, metric.help);
  metrics_->SetGauge(metric.name, labels, value);
}

void RunMetrics::CountUp(const Metric& metric, const MetricLabels& labels, double total) {
  if (described_.insert(metric.name).second) metrics_->Describe(metric.name, metric.help);
  std::string key = metric.name;
  for (const auto& [label, value] : labels) absl::StrAppend(&key, ",", label, "=", value);
  auto found = std::find_if(counted_.begin(), counted_.end(),
                            [&key](const auto& entry) { return entry.first == key; });
  const bool first = found == counted_.end();
  if (first) found = counted_.insert(counted_.end(), {key, 0.0});
  // A counter is there from the beginning, at zero.
  if (first || total > found->second)
    metrics_->AddCounter(metric.name, labels, total - found->second);
  found->second = total;
}

void RunMetrics::PublishFigure(const ShownFigure& figure, MetricLabels labels) {
  const FigureView& view = *figure.view;
  if (view.metric == nullptr) return;
  if (view.at_zero != FigureAtZero::kShown && figure.is_zero()) return;
  // What a model says is no measurement.
  if (figure.field->has_source)
    labels.emplace_back("source", std::string(Name(figure.telemetry->energy_source)));
  const Metric metric = {view.metric, view.help};
  if (absl::EndsWith(view.metric, "_total")) return CountUp(metric, labels, AsReal(figure.value));
  Set(metric, labels, AsReal(figure.value));
}

void RunMetrics::PublishStages(const RunView& view, const RunFigures& figures) {
  for (size_t i = 0; i < figures.stages.size(); ++i) {
    const MetricLabels labels = {{"stage", absl::StrCat(i)}, {"worker", view.stages[i].worker}};
    for (const ShownFigure& figure : FiguresOf(figures.stages[i])) PublishFigure(figure, labels);
  }
  for (size_t i = 0; i < figures.links.size(); ++i) {
    const std::string link = absl::StrCat(i);
    for (const ShownFigure& figure : FiguresOf(figures.links[i])) {
      const bool forward = DirectionOf(figure.field->of) == Direction::kForward;
      PublishFigure(figure, {{"link", link}, {"direction", forward ? "forward" : "backward"}});
    }
    Set({"runnel_link_relayed", "1: the link goes by way of central."}, {{"link", link}},
        figures.links[i].relayed ? 1 : 0);
  }
}

// How many there were, and how long each phase of the last one took.
void RunMetrics::PublishRecoveries(const std::vector<RecoverySummary>& recoveries) {
  CountUp({"runnel_recoveries_total", "Times that training went on without a lost worker."}, {},
          static_cast<double>(recoveries.size()));
  if (recoveries.empty()) return;
  const RecoverySummary& last = recoveries.back();
  const std::pair<const char*, std::optional<double>> phases[] = {
      {"detect", last.detect_s},
      {"plan", last.plan_s},
      {"fetch", last.fetch_s},
      {"first_gradient", last.first_gradient_s},
      {"caught_up", last.caught_up_s}};
  for (const auto& [phase, seconds] : phases) {
    if (seconds.has_value())
      Set({"runnel_recovery_seconds", "Seconds that each phase of the last recovery took."},
          {{"phase", phase}}, *seconds);
  }
}

void RunMetrics::PublishReplication(const ReplicationSummary& replication) {
  CountUp({"runnel_replicas_total", "Barriers whose state neighbours keep a copy of."}, {},
          static_cast<double>(replication.count));
  CountUp({"runnel_replicas_skipped_total",
           "Barriers not copied, since the copy before was on its way."},
          {}, static_cast<double>(replication.skipped));
  CountUp({"runnel_replica_bytes_total", "Bytes of copies that crossed links."}, {},
          static_cast<double>(replication.bytes));
  CountUp({"runnel_replica_stall_seconds_total",
           "Seconds that training stood while stages copied their state."},
          {}, replication.stall_s);
  CountUp({"runnel_replica_seconds_total",
           "Seconds until neighbours had the copies, while training went on."},
          {}, replication.took_s);
  Set({"runnel_replica_step", "Step of the last copy."}, {}, static_cast<double>(replication.step));
}

// 1: as the labels say. What was so once and is no more is 0.
void RunMetrics::PublishProcessors(const std::vector<WorkerProcessors>& workers) {
  constexpr Metric kInfo = {"runnel_worker_processor_info",
                            "1: a worker has this processor; 0: not any more."};
  std::vector<MetricLabels> shown;
  for (const WorkerProcessors& worker : workers) {
    for (const ProcessorFacts& one : worker.processors) {
      shown.push_back({{"worker", worker.worker},
                       {"backend", one.backend},
                       {"device", one.device},
                       {"driver", one.driver},
                       {"dot_product", one.dot_product},
                       {"usable", UsableText(one.state)}});
    }
  }
  if (shown == processors_) return;
  for (const MetricLabels& labels : processors_) Set(kInfo, labels, 0);
  for (const MetricLabels& labels : shown) Set(kInfo, labels, 1);
  processors_ = std::move(shown);
}

void RunMetrics::Evaluation(double accuracy, double loss) {
  if (metrics_ == nullptr) return;
  Set({"runnel_test_accuracy_ratio", "Share of the test set that the last evaluation got right."},
      {}, accuracy);
  Set({"runnel_test_loss", "Mean cross-entropy of the last evaluation."}, {}, loss);
}

void RunMetrics::Publish(const RunView& view, const RunFigures& figures) {
  if (metrics_ == nullptr) return;
  Set({"runnel_step", "Optimizer steps done."}, {}, static_cast<double>(view.progress.step));
  Set({"runnel_samples_per_second", "Training samples a second."}, {}, view.samples_per_s);
  CountUp({"runnel_samples_total", "Training samples done."}, {},
          static_cast<double>(view.progress.samples));
  if (std::isfinite(view.progress.loss))
    Set({"runnel_train_loss", "Mean training loss since the last report."}, {}, view.progress.loss);
  PublishStages(view, figures);
  PublishRecoveries(view.recoveries);
  PublishReplication(view.replication);
  PublishProcessors(view.processors);
  if (view.period.predicted_seconds > 0) {
    constexpr Metric kPeriod = {"runnel_micro_batch_seconds",
                                "Seconds of a micro-batch, as measured and as the plan predicted."};
    Set(kPeriod, {{"of", "measured"}}, view.period.measured_seconds);
    Set(kPeriod, {{"of", "predicted"}}, view.period.predicted_seconds);
  }
}

}  // namespace runnel
