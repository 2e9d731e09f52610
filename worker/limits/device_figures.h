#pragma once

// What telemetry says of the device and of the worker's process: heat, battery, memory, processor
// time, and until when its certificate is good.

#include <cstdint>
#include <functional>
#include <utility>

#include "proto/base/figures/telemetry.h"
#include "worker/limits/device_readings.h"

namespace runnel {

// One thread.
class DeviceFigures {
 public:
  // Sensors and batteries may take milliseconds to answer: they are asked no more often.
  static constexpr int64_t kEveryNs = 10'000'000'000;

  struct Parts {
    std::function<DeviceReadings()> read_device;
    std::function<int64_t()> certificate_until_s = nullptr;  // since 1970; null: there is none
    std::function<int64_t()> now_ns;                         // of a monotonic clock
  };
  explicit DeviceFigures(Parts parts) : parts_(std::move(parts)) {}

  // Sets the members of `telemetry` that are about the device and the process.
  void Fill(Telemetry& telemetry);

 private:
  const Parts parts_;
  bool has_read_ = false;
  int64_t read_ns_ = 0;
  DeviceReadings readings_;
  int64_t certificate_until_s_ = 0;
};

}  // namespace runnel
