#include "central/display/run_history.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"

namespace runnel {

void LossCurve::Merge(const Point& next, Point& into) {
  const auto all = static_cast<double>(into.count + next.count);
  into.mean += (next.mean - into.mean) * static_cast<double>(next.count) / all;
  into.low = std::min(into.low, next.low);
  into.high = std::max(into.high, next.high);
  into.count += next.count;
}

void LossCurve::Add(int64_t step, double value) {
  if (step <= last_step_ || !std::isfinite(value)) return;
  last_step_ = step;
  const Point point{step, 1, value, value, value};
  if (!points_.empty() && step < points_.back().step + span_) return Merge(point, points_.back());
  points_.push_back(point);
  if (points_.size() <= kMaxPoints) return;
  size_t kept = 0;
  for (size_t i = 0; i < points_.size(); i += 2) {
    if (i + 1 < points_.size()) Merge(points_[i + 1], points_[i]);
    points_[kept++] = points_[i];
  }
  points_.resize(kept);
  span_ *= 2;
}

void LossCurve::GoBackTo(int64_t step) {
  std::erase_if(points_, [step](const Point& point) { return point.step > step; });
  last_step_ = std::min(last_step_, step);
}

namespace {

// Who receives measures what a link takes: the next stage the activations, the one before the
// gradients. The two links work at the same time.
int64_t SentNs(const RunView& from, const RunView& to, size_t stage) {
  int64_t activations_ns = 0, gradients_ns = 0;
  if (stage + 1 < to.stages.size()) {
    activations_ns = to.stages[stage + 1].telemetry.activation_times.sum_ns -
                     from.stages[stage + 1].telemetry.activation_times.sum_ns;
  }
  if (stage > 0) {
    gradients_ns = to.stages[stage - 1].telemetry.gradient_times.sum_ns -
                   from.stages[stage - 1].telemetry.gradient_times.sum_ns;
  }
  return std::max(activations_ns, gradients_ns);
}

}  // namespace

void BusyHistory::Add(const RunView& view) {
  const bool goes_on = begin_.plan.generation == view.plan.generation &&
                       begin_.stages.size() == view.stages.size() && view.plan_ns >= begin_.plan_ns;
  if (!goes_on || view.stages.empty()) {
    begin_ = view;
    return;
  }
  const auto time_ns = static_cast<double>(view.plan_ns - begin_.plan_ns);
  if (time_ns < span_s_ * 1e9) return;
  Slice slice{static_cast<double>(view.training_ns) * 1e-9, time_ns * 1e-9,
              view.plan.generation.value()};
  for (size_t i = 0; i < view.stages.size(); ++i) {
    const Telemetry& from = begin_.stages[i].telemetry;
    const Telemetry& to = view.stages[i].telemetry;
    const auto share = [time_ns](int64_t ns) {
      return std::clamp(static_cast<double>(ns) / time_ns, 0.0, 1.0);
    };
    slice.busy.push_back(share(to.busy_ns - from.busy_ns));
    slice.forward.push_back(share(to.forward_times.sum_ns - from.forward_times.sum_ns));
    slice.backward.push_back(share(to.backward_times.sum_ns - from.backward_times.sum_ns));
    slice.wait.push_back(share(to.wait_ns - from.wait_ns));
    slice.send.push_back(share(SentNs(begin_, view, i)));
  }
  slices_.push_back(std::move(slice));
  begin_ = view;
  if (slices_.size() > kMaxSlices) Halve();
}

// Neighbours of one plan become one slice; those of two plans stay.
void BusyHistory::Halve() {
  std::vector<Slice> halved;
  for (size_t i = 0; i < slices_.size(); ++i) {
    Slice slice = slices_[i];
    if (i + 1 < slices_.size() && slices_[i + 1].generation == slice.generation) {
      const Slice& next = slices_[++i];
      const double all = slice.seconds + next.seconds;
      for (const auto shares :
           {&Slice::busy, &Slice::forward, &Slice::backward, &Slice::wait, &Slice::send}) {
        for (size_t j = 0; j < (slice.*shares).size(); ++j)
          (slice.*shares)[j] += ((next.*shares)[j] - (slice.*shares)[j]) * next.seconds / all;
      }
      slice.end_s = next.end_s;
      slice.seconds = all;
    }
    halved.push_back(std::move(slice));
  }
  // So many plans that there are no two neighbours: the oldest go.
  if (halved.size() > kMaxSlices) halved.erase(halved.begin());
  slices_ = std::move(halved);
  span_s_ *= 2;
}

void EventLog::Add(RunEvent event) {
  ++counts_[static_cast<size_t>(event.kind)];
  const auto is_line = [](const RunEvent& one) { return one.kind <= EventKind::kWarning; };
  if (!events_.empty()) {
    RunEvent& last = events_.back();
    if (is_line(event) && !last.why.empty() && absl::StrContains(event.what, last.why)) return;
    if (is_line(last) && !event.why.empty() && absl::StrContains(last.what, event.why))
      events_.pop_back();
  }
  if (event.kind == EventKind::kCheckpoint) {
    newest_checkpoint_ = event;
    std::erase_if(events_, [](const RunEvent& one) { return one.kind == EventKind::kCheckpoint; });
  }
  events_.push_back(std::move(event));
  if (events_.size() > kMaxEvents) events_.pop_front();
}

void RunHistory::Add(const RunView& view, double unix_s) {
  const ProgressState& now = view.progress;
  samples += std::max<int64_t>(0, now.samples - last_.samples);
  if (now.step > last_.step) step_unix_s = unix_s;
  last_ = now;
  loss.Add(now.step, now.loss);
  busy.Add(view);
}

void RunHistory::AddPlan(PlanShown plan) {
  plans.insert(plans.begin(), std::move(plan));
  if (plans.size() > 2) plans.pop_back();
}

void RunHistory::GoBackTo(int64_t step) {
  loss.GoBackTo(step);
  std::erase_if(evaluations, [step](const EvaluationSummary& one) { return one.step > step; });
}

}  // namespace runnel
