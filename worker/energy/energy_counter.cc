#include "worker/energy/energy_counter.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

constexpr double kMicro = 1e-6;

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::string ReadWord(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Entries of a folder in a fixed order; none if there is no such folder.
std::vector<std::string> Entries(const std::string& folder) {
  std::vector<std::string> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path().string());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Counters of microjoules that begin again at zero behind `range`.
class CountedEnergy final : public EnergyCounter {
 public:
  struct Zone {
    std::string path;
    int64_t range = 0;  // 0: not known, a value that falls is dropped
    int64_t last = 0;
  };
  CountedEnergy(EnergySource source, std::vector<Zone> zones)
      : source_(source), zones_(std::move(zones)) {}

  EnergySource source() const override { return source_; }
  std::optional<double> Take(int64_t) override {
    int64_t sum = 0;
    bool is_known = true;
    for (Zone& zone : zones_) {
      const std::optional<int64_t> now = ReadNumber(zone.path);
      if (!now.has_value()) {
        is_known = false;
        continue;
      }
      int64_t passed = *now - std::exchange(zone.last, *now);
      if (passed < 0) passed = std::max<int64_t>(0, passed + zone.range);
      sum += passed;
    }
    if (!is_known) return std::nullopt;
    return static_cast<double>(sum) * kMicro;
  }

 private:
  EnergySource source_;
  std::vector<Zone> zones_;
};

// Power in microwatts that is integrated between two readings.
class IntegratedPower final : public EnergyCounter {
 public:
  using ReadFn = std::optional<double> (*)(const std::string& path);
  IntegratedPower(EnergySource source, std::string path, ReadFn read)
      : source_(source), path_(std::move(path)), read_(read) {}

  EnergySource source() const override { return source_; }
  std::optional<double> Take(int64_t now_ns) override {
    const std::optional<double> watts = read_(path_);
    const std::optional<double> before = std::exchange(watts_, watts);
    const int64_t since_ns = std::exchange(last_ns_, now_ns);
    if (!watts.has_value()) return std::nullopt;
    if (!before.has_value()) return 0;  // the first reading begins the integral
    return (*watts + *before) / 2 * static_cast<double>(now_ns - since_ns) * 1e-9;
  }

 private:
  EnergySource source_;
  std::string path_;
  ReadFn read_;
  std::optional<double> watts_;
  int64_t last_ns_ = 0;
};

// Packages, and memory beside them; cores and graphics are parts of their package, and "psys" is
// more than some boards wire to it.
std::unique_ptr<EnergyCounter> FindRapl(const std::string& root) {
  std::vector<CountedEnergy::Zone> zones;
  for (const std::string& entry : Entries(root + "/sys/class/powercap")) {
    const std::string name = ReadWord(entry + "/name");
    if (!absl::StartsWith(name, "package") && name != "dram") continue;
    const std::optional<int64_t> begin = ReadNumber(entry + "/energy_uj");
    if (!begin.has_value()) continue;  // readable by root only, on most systems
    zones.push_back(
        {entry + "/energy_uj", ReadNumber(entry + "/max_energy_range_uj").value_or(0), *begin});
  }
  if (zones.empty()) return nullptr;
  return std::make_unique<CountedEnergy>(EnergySource::kRapl, std::move(zones));
}

std::optional<double> ReadWatts(const std::string& path) {
  const std::optional<int64_t> microwatts = ReadNumber(path);
  if (!microwatts.has_value()) return std::nullopt;
  return static_cast<double>(*microwatts) * kMicro;
}

// Of several sensors the one with the largest figure: a board's rails are parts of its supply.
std::unique_ptr<EnergyCounter> FindHwmon(const std::string& root) {
  CountedEnergy::Zone most_energy;
  std::string most_power;
  double most_watts = 0;
  for (const std::string& sensor : Entries(root + "/sys/class/hwmon")) {
    for (const std::string& file : Entries(sensor)) {
      const std::string name = fs::path(file).filename().string();
      if (!absl::EndsWith(name, "_input")) continue;
      const std::optional<int64_t> value = ReadNumber(file);
      if (!value.has_value()) continue;
      if (absl::StartsWith(name, "energy") && *value > most_energy.last)
        most_energy = {file, 0, *value};
      const double watts = static_cast<double>(*value) * kMicro;
      if (absl::StartsWith(name, "power") && watts > most_watts) {
        most_watts = watts;
        most_power = file;
      }
    }
  }
  if (!most_energy.path.empty()) {
    return std::make_unique<CountedEnergy>(EnergySource::kHwmon,
                                           std::vector<CountedEnergy::Zone>{most_energy});
  }
  if (most_power.empty()) return nullptr;
  return std::make_unique<IntegratedPower>(EnergySource::kHwmon, most_power, ReadWatts);
}

// Some phones show currents that flow out as negative ones.
std::optional<double> ReadBatteryWatts(const std::string& folder) {
  if (ReadWord(folder + "/status") != "Discharging") return std::nullopt;
  if (const std::optional<int64_t> microwatts = ReadNumber(folder + "/power_now"))
    return std::abs(static_cast<double>(*microwatts)) * kMicro;
  const std::optional<int64_t> microamperes = ReadNumber(folder + "/current_now");
  const std::optional<int64_t> microvolts = ReadNumber(folder + "/voltage_now");
  if (!microamperes.has_value() || !microvolts.has_value()) return std::nullopt;
  return std::abs(static_cast<double>(*microamperes)) * kMicro * static_cast<double>(*microvolts) *
         kMicro;
}

std::unique_ptr<EnergyCounter> FindBattery(const std::string& root) {
  for (const std::string& supply : Entries(root + "/sys/class/power_supply")) {
    if (ReadWord(supply + "/type") != "Battery" || !ReadBatteryWatts(supply).has_value()) continue;
    return std::make_unique<IntegratedPower>(EnergySource::kBattery, supply, ReadBatteryWatts);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<EnergyCounter> EnergyCounter::Find(const std::string& root) {
  if (auto rapl = FindRapl(root); rapl != nullptr) return rapl;
  if (auto hwmon = FindHwmon(root); hwmon != nullptr) return hwmon;
  return FindBattery(root);
}

}  // namespace runnel
