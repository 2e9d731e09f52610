#pragma once

// Starts of a worker on central's host that were in vain: before each the pause is twice as long,
// until ten minutes are over.

#include <algorithm>
#include <cstdint>
#include <optional>

namespace runnel {

class StartAttempts {
 public:
  static constexpr int64_t kFirstPauseMs = 100;
  static constexpr int64_t kLongestPauseMs = 60'000;
  static constexpr int64_t kPatienceMs = 600'000;

  // Before the next start; none: starting is no remedy. The first one is at once.
  std::optional<int64_t> NextPauseMs() {
    if (waited_ms_ >= kPatienceMs) return std::nullopt;
    waited_ms_ += pause_ms_;
    const int64_t pause_ms = pause_ms_;
    pause_ms_ = std::clamp(2 * pause_ms_, kFirstPauseMs, kLongestPauseMs);
    return pause_ms;
  }

 private:
  int64_t pause_ms_ = 0;
  int64_t waited_ms_ = 0;
};

}  // namespace runnel
