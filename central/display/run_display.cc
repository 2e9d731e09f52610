#include "central/display/run_display.h"

#include <unistd.h>

#include <chrono>
#include <utility>

namespace runnel {
namespace {

constexpr int64_t kStuckNs = 30'000'000'000;

double UnixSeconds() {
  using Seconds = std::chrono::duration<double>;
  return Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

RunDisplay::RunDisplay(const ProgressOptions& options, int out, const Clock* clock)
    : progress_(options), out_(out), clock_(clock) {}

void RunDisplay::Write(const std::string& text) {
  size_t done = 0;
  while (out_ >= 0 && done < text.size()) {
    const ssize_t written = write(out_, text.data() + done, text.size() - done);
    if (written <= 0) return;  // no reader: training goes on
    done += static_cast<size_t>(written);
  }
}

void RunDisplay::Begin(RunFacts facts) {
  const std::lock_guard<std::mutex> lock(mutex_);
  facts_ = std::move(facts);
}

void RunDisplay::Update(const RunView& view) {
  ready_ = true;
  Write(progress_.Update(clock_->NowNanos(), view.progress));
  Keep(view);
}

void RunDisplay::Stand(const RunView& view) { Keep(view); }

void RunDisplay::Evaluation(const RunView& view, int64_t step, double accuracy, double loss) {
  Write(progress_.Evaluation(clock_->NowNanos(), view.progress, step, accuracy, loss));
  Keep(view);
  const std::lock_guard<std::mutex> lock(mutex_);
  history_.evaluations.push_back({step, accuracy, loss});
}

bool RunDisplay::alive() const {
  const int64_t turned_ns = turned_ns_;
  return done_ || turned_ns == 0 || clock_->NowNanos() - turned_ns < kStuckNs;
}

void RunDisplay::Transfer(const std::string& what, int64_t arrived_bytes, int64_t total_bytes) {
  turned_ns_ = clock_->NowNanos();
  Write(progress_.Transfer(clock_->NowNanos(), what, arrived_bytes, total_bytes));
}

void RunDisplay::Line(const std::string& text) { Write(progress_.Line(clock_->NowNanos(), text)); }

void RunDisplay::MakeWay() { Write(progress_.MakeWay()); }

void RunDisplay::Finish(const RunView& view) {
  done_ = true;
  Write(progress_.Finish(clock_->NowNanos(), view.progress));
  Keep(view);
}

void RunDisplay::AddPlan(PlanShown plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  history_.AddPlan(std::move(plan));
}

void RunDisplay::AddEvent(RunEvent event) {
  event.unix_s = UnixSeconds();
  const std::lock_guard<std::mutex> lock(mutex_);
  history_.log.Add(std::move(event));
}

void RunDisplay::GoBackTo(int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  history_.GoBackTo(step);
}

void RunDisplay::Keep(const RunView& view) {
  const std::lock_guard<std::mutex> lock(mutex_);
  view_ = view;
  view_ns_ = clock_->NowNanos();
  history_.Add(view, UnixSeconds());
}

ShownRun RunDisplay::Shown() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const double age_s =
      view_ns_ == 0 ? 0 : static_cast<double>(clock_->NowNanos() - view_ns_) * 1e-9;
  // A run that is over does not change any more.
  return {facts_, view_, history_, UnixSeconds(), view_.phase == RunPhase::kDone ? 0 : age_s};
}

}  // namespace runnel
