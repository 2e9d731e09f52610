#pragma once

// Sources of energy figures. The values are part of the control protocol.

#include <cstdint>

#include "absl/strings/string_view.h"

namespace runnel {

enum class EnergySource : uint8_t {
  kModel = 0,    // counted: multiplications and bytes, each with a documented cost
  kRapl = 1,     // the processor's own counter (powercap)
  kHwmon = 2,    // a power or energy sensor on the board
  kBattery = 3,  // figures of a battery
};
inline constexpr int kEnergySourceCount = 4;

// "model", "rapl", "hwmon", "battery".
constexpr absl::string_view Name(EnergySource source) {
  constexpr absl::string_view kNames[kEnergySourceCount] = {"model", "rapl", "hwmon", "battery"};
  return kNames[static_cast<int>(source)];
}

}  // namespace runnel
