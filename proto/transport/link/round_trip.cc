#include "proto/transport/link/round_trip.h"

#include <algorithm>

#include "proto/transport/link/bandwidth.h"

namespace runnel {

std::optional<Sequence> RoundTripMeter::Due(int64_t now_ns, int64_t queued_bytes) {
  const bool waits = sent_ns_.has_value() && now_ns - *sent_ns_ < kAnswerDeadlineNs;
  if (waits || queued_bytes > 0) return std::nullopt;
  sent_ns_ = now_ns;
  last_ = Sequence(last_.value() + 1);
  return last_;
}

void RoundTripMeter::Answered(Sequence ping, int64_t now_ns) {
  if (!sent_ns_.has_value() || ping != last_) return;
  window_.push_back(std::max<int64_t>(now_ns - *sent_ns_, 1));
  if (window_.size() > kWindow) window_.pop_front();
  sent_ns_.reset();
}

int64_t RoundTripMeter::smallest_ns() const {
  return window_.empty() ? 0 : *std::min_element(window_.begin(), window_.end());
}

Frame MakePing(Sequence ping) {
  Frame frame = MakeProbe(1);
  frame.header.sequence = ping;
  return frame;
}

bool IsPing(const FrameHeader& header) { return header.sequence > Sequence(0); }

}  // namespace runnel
