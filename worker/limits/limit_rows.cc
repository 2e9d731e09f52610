#include "worker/limits/limit_rows.h"

#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr double kBatteryMargin = 5;  // percent
constexpr double kHeatMargin = 5;     // K
constexpr int kMinutesADay = 24 * 60;
constexpr double kMegabyte = 1e6;

absl::Status ParseNumber(absl::string_view text, double least, double most, double& number) {
  if (absl::SimpleAtod(text, &number) && number >= least && number <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is no number from ", least, " to ", most));
}

// "22", "7:30"; 24 is midnight.
absl::Status ParseTime(absl::string_view text, int& minute_of_day) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  int hour = 0, minute = 0;
  const bool is_time = parts.size() <= 2 && absl::SimpleAtoi(parts[0], &hour) &&
                       (parts.size() < 2 || absl::SimpleAtoi(parts[1], &minute)) && hour >= 0 &&
                       hour <= 24 && minute >= 0 && minute < 60 &&
                       hour * 60 + minute <= kMinutesADay;
  if (!is_time)
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no time such as 22 or 7:30"));
  minute_of_day = (hour * 60 + minute) % kMinutesADay;
  return absl::OkStatus();
}

std::string TimeText(int minute) { return absl::StrFormat("%d:%02d", minute / 60, minute % 60); }

absl::Status ParseBattery(absl::string_view text, LimitSettings& settings) {
  return ParseNumber(text, 1, 100, settings.least_battery_percent.emplace());
}

// A device without a battery runs on mains, and so does one that is being charged.
std::string BatteryReason(const LimitSettings& settings, const LimitInputs& inputs, bool held) {
  const DeviceReadings& device = inputs.device;
  if (!settings.least_battery_percent.has_value() || !device.battery_percent.has_value() ||
      !device.is_discharging)
    return "";
  const double least = *settings.least_battery_percent;
  if (*device.battery_percent >= least + (held ? kBatteryMargin : 0)) return "";
  return absl::StrFormat(
      "the battery is at %g %%; from %g %% on, or when it is charged, it takes part again",
      *device.battery_percent, least + kBatteryMargin);
}

std::string BatteryText(const LimitSettings& settings) {
  if (!settings.least_battery_percent.has_value()) return "";
  return absl::StrFormat("battery %g %% or more", *settings.least_battery_percent);
}

absl::Status ParseHeat(absl::string_view text, LimitSettings& settings) {
  return ParseNumber(text, 20, 120, settings.most_celsius.emplace());
}

std::string HeatReason(const LimitSettings& settings, const LimitInputs& inputs, bool held) {
  if (!settings.most_celsius.has_value() || !inputs.device.celsius.has_value()) return "";
  const double most = *settings.most_celsius;
  if (*inputs.device.celsius <= most - (held ? kHeatMargin : 0)) return "";
  return absl::StrFormat("the device has %g degrees Celsius; at %g or less it takes part again",
                         std::round(*inputs.device.celsius), most - kHeatMargin);
}

std::string HeatText(const LimitSettings& settings) {
  if (!settings.most_celsius.has_value()) return "";
  return absl::StrFormat("up to %g degrees Celsius", *settings.most_celsius);
}

absl::Status ParseHours(absl::string_view text, LimitSettings& settings) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '-');
  if (parts.size() != 2)
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not FROM-TO, such as 22-7 or 9:30-17"));
  HoursOfDay& hours = settings.hours.emplace();
  RUNNEL_RETURN_IF_ERROR(ParseTime(absl::StripAsciiWhitespace(parts[0]), hours.from_minute));
  return ParseTime(absl::StripAsciiWhitespace(parts[1]), hours.to_minute);
}

std::string HoursReason(const LimitSettings& settings, const LimitInputs& inputs, bool) {
  if (!settings.hours.has_value() || settings.hours->Has(inputs.minute_of_day)) return "";
  return absl::StrCat("it is ", TimeText(inputs.minute_of_day), "; at ",
                      TimeText(settings.hours->from_minute), " it takes part again");
}

std::string HoursText(const LimitSettings& settings) {
  if (!settings.hours.has_value()) return "";
  return absl::StrCat(TimeText(settings.hours->from_minute), " to ",
                      TimeText(settings.hours->to_minute));
}

absl::Status ParseData(absl::string_view text, LimitSettings& settings) {
  double megabytes = 0;
  RUNNEL_RETURN_IF_ERROR(ParseNumber(text, 1, 1e9, megabytes));
  settings.most_data_bytes_a_day = static_cast<int64_t>(megabytes * kMegabyte);
  return absl::OkStatus();
}

std::string DataReason(const LimitSettings& settings, const LimitInputs& inputs, bool) {
  if (!settings.most_data_bytes_a_day.has_value() ||
      inputs.data_bytes_today < *settings.most_data_bytes_a_day)
    return "";
  return absl::StrFormat("%g MB were sent and received today; at midnight it takes part again",
                         std::round(static_cast<double>(inputs.data_bytes_today) / kMegabyte));
}

std::string DataText(const LimitSettings& settings) {
  if (!settings.most_data_bytes_a_day.has_value()) return "";
  return absl::StrFormat("%g MB a day",
                         static_cast<double>(*settings.most_data_bytes_a_day) / kMegabyte);
}

}  // namespace

bool HoursOfDay::Has(int minute) const {
  if (from_minute == to_minute) return true;
  if (from_minute < to_minute) return minute >= from_minute && minute < to_minute;
  return minute >= from_minute || minute < to_minute;  // over midnight
}

absl::Span<const LimitRow> LimitRows() {
  static constexpr LimitRow kRows[] = {
      {"--battery-floor", "PERCENT",
       "take part only while the battery is charged, or has this much; a device without a battery "
       "always does",
       ParseBattery, BatteryReason, BatteryText},
      {"--max-celsius", "DEGREES", "take part only while no part of the device is hotter",
       ParseHeat, HeatReason, HeatText},
      {"--hours", "FROM-TO",
       "take part only at these hours of the device's clock, such as 22-7 or 9:30-17", ParseHours,
       HoursReason, HoursText},
      {"--data-mb-per-day", "MB",
       "send and receive no more than this a day over networks; loopback does not count", ParseData,
       DataReason, DataText},
  };
  return kRows;
}

}  // namespace runnel
