#include "worker/limits/device_readings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace runnel {
namespace {

namespace fs = std::filesystem;

constexpr double kMilli = 1e-3;
// Beyond these a sensor is not connected.
constexpr double kColdest = -40;
constexpr double kHottest = 150;

std::optional<double> ReadNumber(const fs::path& path) {
  std::ifstream file(path);
  double number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::string ReadWord(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

template <typename Fn>
void ForEachEntry(const std::string& folder, const Fn& fn) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    fn(at->path());
}

}  // namespace

DeviceReadings ReadDevice(const std::string& root) {
  DeviceReadings readings;
  ForEachEntry(root + "/sys/class/power_supply", [&](const fs::path& supply) {
    // Batteries of mice and keyboards have the scope "Device".
    if (ReadWord(supply / "type") != "Battery" || ReadWord(supply / "scope") == "Device") return;
    const std::optional<double> percent = ReadNumber(supply / "capacity");
    if (!percent.has_value()) return;
    // Of several the fullest: a laptop with two empties one after the other.
    readings.battery_percent = std::max(readings.battery_percent.value_or(0), *percent);
    readings.is_discharging |= ReadWord(supply / "status") == "Discharging";
  });
  ForEachEntry(root + "/sys/class/thermal", [&](const fs::path& zone) {
    if (zone.filename().string().rfind("thermal_zone", 0) != 0) return;
    const std::optional<double> value = ReadNumber(zone / "temp");
    if (!value.has_value()) return;
    const double celsius = *value * kMilli;
    if (celsius <= kColdest || celsius >= kHottest) return;
    readings.celsius = std::max(readings.celsius.value_or(celsius), celsius);
  });
  return readings;
}

}  // namespace runnel
