#include "worker/host/stage_meter.h"

#include <utility>

#include "worker/peak_memory.h"

namespace runnel {

StageMeter::StageMeter(const Clock* clock, Generation generation, TrainingUse use)
    : clock_(clock), use_(std::move(use)) {
  counts_.generation = generation;
}

void StageMeter::Resume() {
  idle_since_ns_ = clock_->NowNanos();
  use_.Resume(clock_->NowNanos());
}

void StageMeter::BeginAction() {
  if (idle_since_ns_ != 0) counts_.wait_ns += clock_->NowNanos() - std::exchange(idle_since_ns_, 0);
}

void StageMeter::EndAction(const TaskTime& time) {
  counts_.busy_ns += time.end_ns - time.begin_ns;
  counts_.busy_processor_ns += time.processor_ns;
  idle_since_ns_ = time.end_ns;
}

bool StageMeter::EndBackward(int64_t now_ns) {
  return std::exchange(counts_.last_backward_ns, now_ns) == 0;
}

void StageMeter::Pause() {
  idle_since_ns_ = 0;
  use_.Pause(clock_->NowNanos());
}

void StageMeter::Fill(Telemetry& telemetry) const {
  telemetry.peak_rss_bytes = PeakResidentBytes();
  use_.Fill(clock_->NowNanos(), telemetry);
}

}  // namespace runnel
