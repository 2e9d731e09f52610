#pragma once

// The deadline of all phases of a run: the longest time in which nothing moves. Something moves
// when a worker makes progress, a message comes that is no heartbeat, or bytes of a state arrive.
// So no phase needs a time of its own that would have to be guessed: a phase may take hours, and
// ends the run only if it waits for something that never comes. A state machine: no clock.

#include <cstdint>
#include <utility>

namespace runnel {

class Standstill {
 public:
  // A boundary tensor of 16 MB takes so long at 0.15 Mbps, and while it is on its way nothing else
  // says so.
  static constexpr int64_t kLimitNs = int64_t{900} * 1'000'000'000;

  // Between two calls of IsTooLong so much more than usual passed: this process did not run.
  static constexpr int64_t kOwnStallNs = int64_t{10} * 1'000'000'000;

  void Move() { moved_ = true; }
  // amount: of all that gets on by itself; any other than last time is a movement. True: nothing
  // has moved for kLimitNs.
  bool IsTooLong(int64_t now_ns, int64_t amount) {
    const int64_t passed_ns = now_ns - std::exchange(last_ns_, now_ns);
    if (passed_ns > kOwnStallNs) since_ns_ += passed_ns;
    if (moved_ || amount != amount_) since_ns_ = now_ns;
    moved_ = false;
    amount_ = amount;
    return now_ns - since_ns_ >= kLimitNs;
  }

 private:
  bool moved_ = true;
  int64_t amount_ = 0;
  int64_t since_ns_ = 0;
  int64_t last_ns_ = 0;
};

}  // namespace runnel
