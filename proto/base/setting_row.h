#pragma once

// Facts of a setting that its table has beside the place of its value: the allowed values, and the
// flag by which a user sets it. The tables are TrainingFields
// (proto/base/training/training_fields.h) and RunFields (central/settings/run_fields.h).
// || Plain data and pure functions; any thread.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace runnel {

// The sections of `runnel-central train --help`, in their order.
enum class SettingGroup : uint8_t {
  kData,
  kMembers,
  kLinks,
  kPlanning,
  kTraining,
  kStaleness,
  kIntegers,
  kOutput,
  kAdvanced,
};

// Upper bound of all counts: the product of two of them fits 64 bits.
inline constexpr double kMaxSettingCount = 1'000'000'000;
// A list of integers has no more elements.
inline constexpr size_t kMaxSettingList = 4096;

// A number, or each element of a list, lies from min to max (below max if `below_max`). A text with
// min >= 1 must not be empty; each must be UTF-8.
struct SettingRange {
  double min = 0;
  double max = std::numeric_limits<double>::max();
  bool below_max = false;
};

struct SettingFlag {
  absl::string_view name;  // "batch-size": flag and key of the config file; empty: no user sets it
  SettingGroup group = SettingGroup::kTraining;
  absl::string_view help;     // one line for people, without the default
  absl::string_view example;  // a value that the flag takes and that is not its default
  // "the model's": where the value comes from if the user does not give it. A number or a list is
  // then -1 as long as nobody has looked there. Empty: the member's initial value is the default.
  absl::string_view fallback;
  // "auto": the word that a user writes for the number 0. Empty: 0 is 0.
  absl::string_view zero = {};
};

// OK, or InvalidArgument with the allowed values: "must be at least 1".
absl::Status CheckSetting(const SettingRange& range, double value);
absl::Status CheckSetting(const SettingRange& range, int64_t value);
absl::Status CheckSetting(const SettingRange& range, uint64_t value);
absl::Status CheckSetting(const SettingRange& range, const std::string& value);
absl::Status CheckSetting(const SettingRange& range, const std::vector<int64_t>& values);

}  // namespace runnel
