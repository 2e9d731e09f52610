#pragma once

// The double of the vendor's library (vendor_double.cc) as tests find it.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/backends/hexagon/device/device_session.h"

namespace runnel::hexagon {

// "" is the whole library; "_without_queues", "_without_open": variants.
std::string DoublePath(const std::string& variant = "");
// NotFound: the build has no double, or there is no emulator.
absl::Status HasDouble();
// A session with little memory.
DeviceSessionOptions DoubleOptions(const std::string& variant = "");

// What the loaded double counted since its handle was opened.
struct DoubleStatistics {
  int64_t lists = 0, bytes_in = 0, bytes_out = 0;
  uint32_t vtcm_bytes = 0, powered = 0, mapped = 0, threads = 0;
  uint32_t vtcm_taken = 0, vtcm_returned = 0;
  uint32_t vtcm_waits = 0, vtcm_asks = 0, vtcm_shared = 0;
};
DoubleStatistics StatisticsOfDouble(const std::string& variant = "");

}  // namespace runnel::hexagon
