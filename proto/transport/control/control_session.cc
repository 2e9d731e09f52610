#include "proto/transport/control/control_session.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

std::optional<std::string> ControlSession::NextAgain() {
  if (sent_all()) return std::nullopt;
  return kept_[next_++];
}

void ControlSession::Keep(std::string message) {
  kept_.push_back(std::move(message));
  next_ = kept_.size();
}

absl::Status ControlSession::Acknowledge(int64_t count) {
  const int64_t more = count - acknowledged_;
  if (more < 0 || more > static_cast<int64_t>(next_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "received.messages: ", count, " where ", acknowledged_, " were known to have arrived and ",
        acknowledged_ + static_cast<int64_t>(next_), " have left"));
  }
  kept_.erase(kept_.begin(), kept_.begin() + more);
  next_ -= static_cast<size_t>(more);
  acknowledged_ = count;
  return absl::OkStatus();
}

std::optional<int64_t> ControlSession::DueAck(bool is_asked) {
  if (!is_asked && received_ - told_ < kAckEvery) return std::nullopt;
  told_ = received_;
  return received_;
}

absl::Status ControlSession::Connect(int64_t count) {
  // Messages of the old connection may have arrived.
  next_ = kept_.size();
  const absl::Status known = Acknowledge(count);
  next_ = 0;
  // The peer hears of this with the connection itself.
  told_ = received_;
  return known;
}

}  // namespace runnel
