#pragma once

// Time as an input. State machines never ask for it; shells read it here, tests and the simulator
// bring their own.

#include <cstdint>

namespace runnel {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary, fixed start; never goes back. Any thread.
  virtual int64_t NowNanos() const = 0;
};

// The machine's monotonic clock.
class MonotonicClock final : public Clock {
 public:
  int64_t NowNanos() const override;
};

}  // namespace runnel
