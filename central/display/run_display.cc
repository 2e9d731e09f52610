#include "central/display/run_display.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace runnel {
namespace {

constexpr size_t kMaxLosses = 400;

using nlohmann::json;

json StagesJson(const RunView& view, const RunFigures& figures) {
  json stages = json::array();
  for (size_t i = 0; i < view.stages.size(); ++i) {
    const StageStatus& stage = view.stages[i];
    stages.push_back({{"device", stage.worker},
                      {"first_layer", stage.plan.first_layer},
                      {"last_layer", stage.plan.last_layer},
                      {"cap", stage.plan.cap},
                      {"busy_share", figures.stages[i].busy_share},
                      {"wait_share", figures.stages[i].wait_share}});
    if (i >= view.stage_seconds.size()) continue;
    const StageSeconds& seconds = view.stage_seconds[i];
    if (seconds.predicted > 0) stages.back()["predicted_ms"] = seconds.predicted * 1e3;
    if (seconds.measured > 0) stages.back()["measured_ms"] = seconds.measured * 1e3;
  }
  return stages;
}

json LinksJson(const RunFigures& figures) {
  json links = json::array();
  for (const LinkSummary& link : figures.links) {
    links.push_back({{"codec_forward", link.codec_forward},
                     {"codec_backward", link.codec_backward},
                     {"bytes_forward", link.bytes_forward},
                     {"bytes_backward", link.bytes_backward},
                     {"bandwidth_forward_bytes_per_s", link.bandwidth_forward_bytes_per_s},
                     {"bandwidth_backward_bytes_per_s", link.bandwidth_backward_bytes_per_s},
                     {"relayed", link.relayed}});
  }
  return links;
}

}  // namespace

RunDisplay::RunDisplay(const ProgressOptions& options, int out, MetricsSink* metrics,
                       const Clock* clock)
    : progress_(options), out_(out), metrics_(metrics), clock_(clock) {}

void RunDisplay::Write(const std::string& text) {
  size_t done = 0;
  while (out_ >= 0 && done < text.size()) {
    const ssize_t written = write(out_, text.data() + done, text.size() - done);
    if (written <= 0) return;  // no reader: training goes on
    done += static_cast<size_t>(written);
  }
}

void RunDisplay::Update(const RunView& view) {
  ready_ = true;
  Write(progress_.Update(clock_->NowNanos(), view.progress));
  Publish(view);
}

void RunDisplay::Evaluation(const RunView& view, int64_t step, double accuracy, double loss) {
  accuracy_ = accuracy;
  Write(progress_.Evaluation(clock_->NowNanos(), view.progress, step, accuracy, loss));
  if (metrics_ != nullptr) {
    metrics_->SetGauge("runnel_test_accuracy_ratio", {}, accuracy);
    metrics_->SetGauge("runnel_test_loss", {}, loss);
  }
  Publish(view);
}

void RunDisplay::Transfer(const std::string& what, int64_t arrived_bytes, int64_t total_bytes) {
  Write(progress_.Transfer(clock_->NowNanos(), what, arrived_bytes, total_bytes));
}

void RunDisplay::Line(const std::string& text) { Write(progress_.Line(clock_->NowNanos(), text)); }

void RunDisplay::MakeWay() { Write(progress_.MakeWay()); }

void RunDisplay::Finish(const RunView& view) {
  Write(progress_.Finish(clock_->NowNanos(), view.progress));
  Publish(view);
}

// A counter that follows a total which somebody else adds up.
void RunDisplay::CountUp(const std::string& name, const MetricLabels& labels, double total) {
  std::string key = name;
  for (const auto& [label, value] : labels) absl::StrAppend(&key, ",", label, "=", value);
  auto found = std::find_if(counted_.begin(), counted_.end(),
                            [&key](const auto& entry) { return entry.first == key; });
  const bool first = found == counted_.end();
  if (first) found = counted_.insert(counted_.end(), {key, 0.0});
  // A counter is there from the beginning, at zero.
  if (first || total > found->second) metrics_->AddCounter(name, labels, total - found->second);
  found->second = total;
}

void RunDisplay::PublishLink(size_t index, const LinkSummary& link) {
  const MetricLabels forward = {{"link", absl::StrCat(index)}, {"direction", "forward"}};
  const MetricLabels backward = {{"link", absl::StrCat(index)}, {"direction", "backward"}};
  CountUp("runnel_link_bytes_total", forward, static_cast<double>(link.bytes_forward));
  CountUp("runnel_link_bytes_total", backward, static_cast<double>(link.bytes_backward));
  metrics_->SetGauge("runnel_link_relayed", {{"link", absl::StrCat(index)}}, link.relayed ? 1 : 0);
  metrics_->SetGauge("runnel_link_relayed", {{"link", absl::StrCat(index)}}, link.relayed ? 1 : 0);
  // Left out where the rate is not known yet, rather than 0.
  constexpr char kBandwidth[] = "runnel_link_bandwidth_bytes_per_second";
  if (link.bandwidth_forward_bytes_per_s > 0)
    metrics_->SetGauge(kBandwidth, forward, link.bandwidth_forward_bytes_per_s);
  if (link.bandwidth_backward_bytes_per_s > 0)
    metrics_->SetGauge(kBandwidth, backward, link.bandwidth_backward_bytes_per_s);
}

// Publishes the number of recoveries and the phases of the last one.
void RunDisplay::PublishRecoveries(const std::vector<RecoverySummary>& recoveries) {
  CountUp("runnel_recoveries_total", {}, static_cast<double>(recoveries.size()));
  if (recoveries.empty()) return;
  const RecoverySummary& last = recoveries.back();
  const std::pair<const char*, double> phases[] = {{"detect", last.detect_s},
                                                   {"plan", last.plan_s},
                                                   {"fetch", last.fetch_s},
                                                   {"first_gradient", last.first_gradient_s},
                                                   {"caught_up", last.caught_up_s}};
  for (const auto& [phase, seconds] : phases) {
    if (seconds >= 0) metrics_->SetGauge("runnel_recovery_seconds", {{"phase", phase}}, seconds);
  }
}

void RunDisplay::PublishReplication(const ReplicationSummary& replication) {
  CountUp("runnel_replicas_total", {}, static_cast<double>(replication.count));
  CountUp("runnel_replicas_skipped_total", {}, static_cast<double>(replication.skipped));
  CountUp("runnel_replica_bytes_total", {}, static_cast<double>(replication.bytes));
  CountUp("runnel_replica_stall_seconds_total", {}, replication.stall_s);
  CountUp("runnel_replica_seconds_total", {}, replication.took_s);
  metrics_->SetGauge("runnel_replica_step", {}, static_cast<double>(replication.step));
}

// 1: as the labels say. What was so once and is no more is 0.
void RunDisplay::PublishProcessors(const std::vector<WorkerProcessors>& workers) {
  constexpr char kInfo[] = "runnel_worker_processor_info";
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
  for (const MetricLabels& labels : processors_) metrics_->SetGauge(kInfo, labels, 0);
  for (const MetricLabels& labels : shown) metrics_->SetGauge(kInfo, labels, 1);
  processors_ = std::move(shown);
}

// Labelled by the source of the figure, since a model is no measurement.
void RunDisplay::PublishEnergy(const RunView& view, size_t stage, const StageSummary& figures) {
  if (figures.joules <= 0) return;
  const MetricLabels labels = {{"stage", absl::StrCat(stage)},
                               {"worker", view.stages[stage].worker},
                               {"source", std::string(Name(figures.energy_source))}};
  metrics_->SetGauge("runnel_stage_joules", labels, figures.joules);
  if (stage < view.stage_joules_a_sample.size()) {
    metrics_->SetGauge("runnel_stage_joules_per_sample", labels, view.stage_joules_a_sample[stage]);
  }
}

void RunDisplay::Publish(const RunView& view) {
  const RunFigures figures = FiguresOf(view.plan, view.stages, view.plan_ns);
  if (metrics_ != nullptr) {
    metrics_->SetGauge("runnel_step", {}, static_cast<double>(view.progress.step));
    metrics_->SetGauge("runnel_samples_per_second", {}, view.samples_per_s);
    CountUp("runnel_samples_total", {}, static_cast<double>(view.progress.samples));
    if (std::isfinite(view.progress.loss))
      metrics_->SetGauge("runnel_train_loss", {}, view.progress.loss);
    for (size_t i = 0; i < figures.stages.size(); ++i) {
      const MetricLabels labels = {{"stage", absl::StrCat(i)}, {"worker", view.stages[i].worker}};
      metrics_->SetGauge("runnel_stage_busy_ratio", labels, figures.stages[i].busy_share);
      metrics_->SetGauge("runnel_stage_wait_ratio", labels, figures.stages[i].wait_share);
      metrics_->SetGauge("runnel_stage_peak_resident_bytes", labels,
                         static_cast<double>(figures.stages[i].peak_rss_bytes));
      PublishEnergy(view, i, figures.stages[i]);
      CountUp("runnel_stage_stale_frames_total", labels,
              static_cast<double>(view.stages[i].telemetry.stale_frames_dropped));
    }
    for (size_t i = 0; i < figures.links.size(); ++i) PublishLink(i, figures.links[i]);
    PublishRecoveries(view.recoveries);
    PublishReplication(view.replication);
    PublishProcessors(view.processors);
    if (view.period.predicted_seconds > 0) {
      constexpr char kPeriod[] = "runnel_micro_batch_seconds";
      metrics_->SetGauge(kPeriod, {{"of", "measured"}}, view.period.measured_seconds);
      metrics_->SetGauge(kPeriod, {{"of", "predicted"}}, view.period.predicted_seconds);
    }
  }
  if (std::isfinite(view.progress.loss) &&
      (losses_.empty() || losses_.back().first < view.progress.step)) {
    losses_.emplace_back(view.progress.step, view.progress.loss);
    if (losses_.size() > kMaxLosses) losses_.pop_front();
  }
  json state = {{"model", view.model},
                {"step", view.progress.step},
                {"steps", view.progress.steps},
                {"epoch", view.progress.epoch + 1},
                {"epochs", view.progress.epochs},
                {"samples_per_s", view.samples_per_s},
                {"stages", StagesJson(view, figures)},
                {"links", LinksJson(figures)},
                {"recoveries", view.recoveries.size()},
                {"losses", losses_}};
  if (std::isfinite(view.progress.loss)) state["train_loss"] = view.progress.loss;
  if (accuracy_ >= 0) state["accuracy"] = accuracy_;
  if (view.period.predicted_seconds > 0) {
    state["micro_batch_ms"] = view.period.measured_seconds * 1e3;
    state["predicted_ms"] = view.period.predicted_seconds * 1e3;
    if (!view.period.cause.empty()) state["slow_because"] = view.period.cause;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  state_json_ = state.dump();
}

std::string RunDisplay::StateJson() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return state_json_;
}

}  // namespace runnel
