#pragma once

// What all devices of a run did within a window: forwards, gradients, coding, by central's clock.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/base/figures/span.h"

namespace runnel {

struct DeviceTrace {
  std::string device;
  std::optional<int> stage;  // of the plan that held when the window began; none: it had none
  int first_layer = 0;       // of that stage
  int last_layer = 0;
  bool answered = false;    // else it is lost, or took longer than the grace
  std::vector<Span> spans;  // begin_ns by central's clock
  int64_t left_out = 0;     // spans beyond what a worker keeps
};

struct RunTrace {
  int64_t begin_ns = 0;  // by central's monotonic clock
  int64_t window_ns = 0;
  int64_t step = 0;  // the last barrier before the window
  std::vector<DeviceTrace> devices;
};

}  // namespace runnel
