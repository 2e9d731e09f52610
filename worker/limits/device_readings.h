#pragma once

// What the device's kernel shows of its battery and its heat.

#include <optional>
#include <string>

namespace runnel {

struct DeviceReadings {
  // Of the battery that the device runs on, 0 to 100; none: it has none.
  std::optional<double> battery_percent = {};
  bool is_discharging = false;
  // Of the hottest part that the kernel measures; none: it measures none.
  std::optional<double> celsius = {};
};

// Reads below `root`: "" on a device, a folder in tests. Any thread.
DeviceReadings ReadDevice(const std::string& root);

}  // namespace runnel
