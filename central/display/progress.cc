#include "central/display/progress.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace runnel {
namespace {

// Longest silence that nobody takes for a hung program.
constexpr int64_t kPatienceNs = 2'000'000'000;
constexpr double kNanosPerSecond = 1e9;
// The time left is shown once what has arrived is this share of what has not.
constexpr double kLeastShareOfRest = 1.0 / 20;
// Rates are those of the last while, so that they follow a slow link or a lost worker.
constexpr int64_t kWindowNs = 15'000'000'000;
// Before that a rate is mostly start-up.
constexpr double kMinSpanSeconds = 0.5;
constexpr char kClearLine[] = "\r\x1b[K";

}  // namespace

std::string FormatDuration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "--";
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

Progress::Progress(const ProgressOptions& options) : options_(options) {}

void Progress::Observe(int64_t now_ns, const ProgressState& state) {
  now_ns_ = now_ns;
  if (!first_step_.has_value()) first_step_ = state.step;
  // Steps go back when a run recovers from a loss.
  if (!points_.empty() &&
      (state.step < points_.back().step || state.samples < points_.back().samples)) {
    points_.clear();
  }
  if (points_.empty() || state.step > points_.back().step) {
    points_.push_back({now_ns, state.step, state.samples});
  }
  while (points_.size() > 2 && points_[1].time_ns <= now_ns - kWindowNs) points_.pop_front();
  if (!state.is_evaluating()) {
    evaluation_ = Task();
  } else if (IsAnother(evaluation_, state.evaluated, state.to_evaluate)) {
    evaluation_ = {now_ns, state.evaluated, state.to_evaluate};
  }
}

bool Progress::IsAnother(const Task& task, int64_t done, int64_t total) {
  return total != task.total || done < task.done;
}

std::string Progress::ShareText(const Task& task, int64_t done, int64_t total) const {
  std::string text = absl::StrFormat("%d %%", 100 * done / total);
  const auto gained = static_cast<double>(done - task.done);
  const auto left = static_cast<double>(total - done);
  const double seconds = static_cast<double>(now_ns_ - task.time_ns) / kNanosPerSecond;
  if (gained > left * kLeastShareOfRest)
    absl::StrAppend(&text, ", ", FormatDuration(left * seconds / gained), " left");
  return text;
}

double Progress::SpanSeconds() const {
  if (points_.size() < 2) return 0;
  const int64_t span = points_.back().time_ns - points_.front().time_ns;
  const int64_t since = now_ns_ - points_.back().time_ns;
  // If nothing comes for longer than the points span, the rate falls.
  const double seconds = static_cast<double>(since > span ? span + since : span) / kNanosPerSecond;
  return seconds < kMinSpanSeconds ? 0 : seconds;
}

std::string Progress::StatusText(const ProgressState& state) const {
  std::string text =
      absl::StrFormat("epoch %d/%d  batch %d/%d", std::min(state.epoch + 1, state.epochs),
                      state.epochs, state.step_in_epoch, state.steps_per_epoch);
  if (!std::isnan(state.loss)) absl::StrAppendFormat(&text, "  loss %.4f", state.loss);
  if (state.is_evaluating()) {
    return absl::StrCat(text, "  evaluating ",
                        ShareText(evaluation_, state.evaluated, state.to_evaluate));
  }
  const double span = SpanSeconds();
  if (span > 0) {
    const Point& from = points_.front();
    const Point& to = points_.back();
    absl::StrAppendFormat(&text, "  %.0f samples/s",
                          static_cast<double>(to.samples - from.samples) / span);
    const double step_seconds = span / static_cast<double>(to.step - from.step);
    const double idle = static_cast<double>(now_ns_ - to.time_ns) / kNanosPerSecond;
    const double left = static_cast<double>(state.steps - state.step) * step_seconds;
    // The next step is under way already.
    absl::StrAppend(&text, "  ETA ",
                    FormatDuration(std::max(0.0, left - std::min(idle, step_seconds))));
  } else {
    absl::StrAppend(&text, "  ETA --");
  }
  if (!state.stage_busy.empty()) absl::StrAppend(&text, "  busy");
  for (double busy : state.stage_busy) absl::StrAppendFormat(&text, " %.0f%%", 100 * busy);
  return text;
}

std::string Progress::Redraw(const ProgressState& state) {
  last_output_ns_ = now_ns_;
  std::string text = StatusText(state);
  // One column stays free: a full line would wrap and could not be redrawn.
  const size_t room = static_cast<size_t>(std::max(options_.width - 1, 0));
  if (text.size() > room) text.resize(room);
  return absl::StrCat(kClearLine, text);
}

std::string Progress::Plain(absl::string_view text) {
  if (!options_.terminal) {
    last_output_ns_ = now_ns_;
    return absl::StrCat(text, "\n");
  }
  return absl::StrCat(kClearLine, text, "\n", started_ ? Redraw(last_) : "");
}

std::string Progress::Update(int64_t now_ns, const ProgressState& state) {
  const bool first = !started_;
  const bool epoch_ended = started_ && state.epoch > last_.epoch;
  Observe(now_ns, state);
  started_ = true;
  last_ = state;
  const int64_t since = now_ns - last_output_ns_;
  if (options_.terminal) {
    return first || epoch_ended || since >= options_.redraw_interval_ns ? Redraw(state) : "";
  }
  if (first) last_output_ns_ = now_ns;  // nothing to say yet
  if (state.is_evaluating() && !evaluation_.is_shown &&
      now_ns - evaluation_.time_ns >= kPatienceNs) {
    evaluation_.is_shown = true;
    return Plain(StatusText(state));
  }
  if (epoch_ended) {
    return Plain(
        absl::StrFormat("epoch %d/%d done  %s", state.epoch, state.epochs, StatusText(state)));
  }
  return !first && since >= options_.line_interval_ns ? Plain(StatusText(state)) : "";
}

std::string Progress::Evaluation(int64_t now_ns, const ProgressState& state, int64_t step,
                                 double accuracy, double loss) {
  Observe(now_ns, state);
  started_ = true;
  last_ = state;
  return Plain(absl::StrFormat("evaluation after %d batches: accuracy %.2f%%  loss %.4f", step,
                               100 * accuracy, loss));
}

std::string Progress::Transfer(int64_t now_ns, absl::string_view what, int64_t arrived_bytes,
                               int64_t total_bytes) {
  now_ns_ = now_ns;
  if (arrived_bytes >= total_bytes) {
    transfer_ = Task();
    return "";
  }
  if (IsAnother(transfer_, arrived_bytes, total_bytes)) {
    transfer_ = {now_ns, arrived_bytes, total_bytes};
    last_output_ns_ = now_ns;
    return "";
  }
  const int64_t line_interval_ns = transfer_.is_shown ? options_.line_interval_ns : kPatienceNs;
  const int64_t interval_ns = options_.terminal ? options_.redraw_interval_ns : line_interval_ns;
  if (now_ns - last_output_ns_ < interval_ns) return "";
  last_output_ns_ = now_ns;
  transfer_.is_shown = true;
  const std::string text =
      absl::StrCat(what, ": ", ShareText(transfer_, arrived_bytes, total_bytes));
  return options_.terminal ? absl::StrCat(kClearLine, text) : absl::StrCat(text, "\n");
}

std::string Progress::Line(int64_t now_ns, absl::string_view line) {
  now_ns_ = now_ns;
  const int64_t last_output_ns = last_output_ns_;
  std::string text = Plain(line);
  // Somebody else's lines say nothing of ours.
  if (!options_.terminal) last_output_ns_ = last_output_ns;
  return text;
}

std::string Progress::MakeWay() const { return options_.terminal && started_ ? kClearLine : ""; }

std::string Progress::Finish(int64_t now_ns, const ProgressState& state) {
  if (!started_ && state.step == 0) return "";
  const std::string clear = MakeWay();
  started_ = false;
  if (first_step_ == state.step) return clear;
  Observe(now_ns, state);
  last_ = state;
  return options_.terminal ? absl::StrCat(Redraw(state), "\n") : Plain(StatusText(state));
}

}  // namespace runnel
