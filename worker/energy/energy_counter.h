#pragma once

// The device's energy, as far as its kernel shows it: a laptop has RAPL, some boards a sensor
// behind their supply, a phone its battery's figures.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "proto/base/host/energy_source.h"

namespace runnel {

// Counts the energy of the whole device, all processes together. One thread.
class EnergyCounter {
 public:
  // The best one that can be read below `root` ("" on a device; a folder in tests): RAPL, then
  // hwmon, then a battery that is being discharged. Null: none.
  static std::unique_ptr<EnergyCounter> Find(const std::string& root);

  virtual ~EnergyCounter() = default;
  virtual EnergySource source() const = 0;
  // Joules since the last call, or since Find; now_ns is of a monotonic clock. None: the counter
  // cannot tell any more (a file is gone, a battery is charged); a later call may tell again.
  virtual std::optional<double> Take(int64_t now_ns) = 0;
};

}  // namespace runnel
