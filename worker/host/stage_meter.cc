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
  if (idle_since_ns_ == 0) return;
  const int64_t waited_ns = clock_->NowNanos() - std::exchange(idle_since_ns_, 0);
  counts_.wait_ns += waited_ns;
  counts_.wait_times.Add(waited_ns);
}

void StageMeter::EndAction(SpanKind kind, const TaskTime& time, const Parts& parts) {
  counts_.busy_ns += time.end_ns - time.begin_ns;
  // Forward, gradients, update: of most actions one is there.
  const bool is_forward = kind == SpanKind::kForward || kind == SpanKind::kEvaluation;
  const int64_t forward_end_ns = is_forward ? time.end_ns : parts.forward_ended_ns;
  if (forward_end_ns != 0) counts_.forward_times.Add(forward_end_ns - time.begin_ns);
  const int64_t update_begin_ns = kind == SpanKind::kStep ? time.begin_ns : parts.update_began_ns;
  if (update_begin_ns != 0) counts_.update_times.Add(time.end_ns - update_begin_ns);
  if (!is_forward && kind != SpanKind::kStep) {
    counts_.backward_times.Add((update_begin_ns != 0 ? update_begin_ns : time.end_ns) -
                               (forward_end_ns != 0 ? forward_end_ns : time.begin_ns));
  }
  counts_.busy_processor_ns += time.processor_ns;
  idle_since_ns_ = time.end_ns;
}

void StageMeter::EndCoding(SpanKind kind, int64_t took_ns) {
  counts_.codec_ns += took_ns;
  const bool encodes = kind == SpanKind::kEncodeActivation || kind == SpanKind::kEncodeGradient;
  (encodes ? counts_.encode_times : counts_.decode_times).Add(took_ns);
}

void StageMeter::CountArrival(Direction direction, int64_t bytes, double bytes_per_second) {
  if (bytes_per_second <= 0) return;
  const bool is_forward = direction == Direction::kForward;
  (is_forward ? counts_.activation_times : counts_.gradient_times)
      .Add(static_cast<int64_t>(static_cast<double>(bytes) / bytes_per_second * 1e9));
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
