#include "proto/transport/relay/dial_route.h"

namespace runnel {

DialRoute::Way DialRoute::Next(int64_t now_ns) {
  const bool is_old = now_ns - found_ns_ > kTrustNs;
  if (preferred_ == Way::kRelay && is_old && in_vain_ == 0) preferred_ = Way::kStraight;
  if (in_vain_ < kTries) return preferred_;
  return (in_vain_ - kTries) % 2 == 0 ? Other(preferred_) : preferred_;
}

void DialRoute::Heard(Way way, int64_t now_ns) {
  preferred_ = way;
  found_ns_ = now_ns;
  in_vain_ = 0;
}

void DialRoute::Ended(Way way, bool heard, int64_t began_ns, int64_t now_ns) {
  if (heard) return;
  const bool is_first_choice = in_vain_ < kTries;
  ++in_vain_;
  if (is_first_choice && way == preferred_ && now_ns - began_ns >= kSlowNs) in_vain_ = kTries;
}

}  // namespace runnel
