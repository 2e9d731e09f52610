#pragma once

// The limits that a device's owner sets, one row each. A worker that reaches one gives its stage away and
// takes no part until the limit is left again, with a margin so that it does not come and go.
//
// Pure functions; any thread.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/limits/device_readings.h"

namespace runnel {

// Minutes since midnight; from == to: the whole day.
struct HoursOfDay {
  int from_minute = 0;
  int to_minute = 0;

  bool Has(int minute) const;
};

// What the owner has set; none: no limit.
struct LimitSettings {
  std::optional<double> least_battery_percent = {};
  std::optional<double> most_celsius = {};
  std::optional<HoursOfDay> hours = {};
  std::optional<int64_t> most_data_bytes_a_day = {};
};

// How the device stands.
struct LimitInputs {
  DeviceReadings device = {};
  int minute_of_day = 0;         // of local time
  int64_t data_bytes_today = 0;  // sent and received over networks
};

struct LimitRow {
  const char* flag;
  const char* value;  // its form
  const char* help;
  // InvalidArgument, without the flag's name.
  absl::Status (*parse)(absl::string_view text, LimitSettings& settings);
  // Why the worker takes no part, with what would change that; empty: it may. held: it takes none
  // because of this limit already.
  std::string (*reason)(const LimitSettings& settings, const LimitInputs& inputs, bool held);
  // "battery over 20 %"; empty: not set.
  std::string (*text)(const LimitSettings& settings);
};

absl::Span<const LimitRow> LimitRows();

}  // namespace runnel
