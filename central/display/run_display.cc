#include "central/display/run_display.h"

#include <unistd.h>

#include <cmath>
#include <utility>

#include "central/records/figure_json.h"

namespace runnel {
namespace {

constexpr size_t kMaxLosses = 400;
constexpr int64_t kStuckNs = 30'000'000'000;

Json StagesJson(const RunView& view, const RunFigures& figures) {
  Json stages = Json::array();
  for (size_t i = 0; i < view.stages.size(); ++i) {
    const StageStatus& stage = view.stages[i];
    Json json{{"device", stage.worker},
              {"first_layer", stage.plan.first_layer},
              {"last_layer", stage.plan.last_layer},
              {"cap", stage.plan.cap}};
    AddFigures(FiguresOf(figures.stages[i]), /*for_page=*/true, json);
    const StageSeconds seconds =
        i < view.stage_seconds.size() ? view.stage_seconds[i] : StageSeconds();
    if (seconds.predicted > 0) json["predicted_ms"] = seconds.predicted * 1e3;
    if (seconds.measured > 0) json["measured_ms"] = seconds.measured * 1e3;
    stages.push_back(std::move(json));
  }
  return stages;
}

Json LinksJson(const RunFigures& figures) {
  Json links = Json::array();
  for (const LinkSummary& link : figures.links) {
    Json json{{"codec_forward", link.codec_forward}, {"codec_backward", link.codec_backward}};
    AddFigures(FiguresOf(link), /*for_page=*/true, json);
    json["relayed"] = link.relayed;
    links.push_back(std::move(json));
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
  metrics_.Evaluation(accuracy, loss);
  Publish(view);
}

bool RunDisplay::alive() const {
  const int64_t turned_ns = turned_ns_;
  return turned_ns == 0 || clock_->NowNanos() - turned_ns < kStuckNs;
}

void RunDisplay::Transfer(const std::string& what, int64_t arrived_bytes, int64_t total_bytes) {
  turned_ns_ = clock_->NowNanos();
  Write(progress_.Transfer(clock_->NowNanos(), what, arrived_bytes, total_bytes));
}

void RunDisplay::Line(const std::string& text) { Write(progress_.Line(clock_->NowNanos(), text)); }

void RunDisplay::MakeWay() { Write(progress_.MakeWay()); }

void RunDisplay::Finish(const RunView& view) {
  Write(progress_.Finish(clock_->NowNanos(), view.progress));
  Publish(view);
}

void RunDisplay::Publish(const RunView& view) {
  const RunFigures figures =
      SummariseStages(view.plan, view.stages, view.plan_ns, view.stage_samples);
  metrics_.Publish(view, figures);
  if (std::isfinite(view.progress.loss) &&
      (losses_.empty() || losses_.back().first < view.progress.step)) {
    losses_.emplace_back(view.progress.step, view.progress.loss);
    if (losses_.size() > kMaxLosses) losses_.pop_front();
  }
  Json state = {{"model", view.model},
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
  if (accuracy_.has_value()) state["accuracy"] = *accuracy_;
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
