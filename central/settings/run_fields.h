#pragma once

// The one table of what `runnel-central train` can be told: a row a flag. Flags, --help, the config
// file and the JSON of journals and check-points come from it. The rows of training settings stand
// in proto/base/training/training_fields.h, all others in run_fields.cc.
//
// Pure functions; any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "central/settings/run_settings.h"
#include "proto/base/setting_row.h"
#include "proto/base/training/training_fields.h"

namespace runnel {

using RunMember =
    std::variant<std::string RunSettings::*, int64_t RunSettings::*,
                 std::optional<int64_t> RunSettings::*, double RunSettings::*,
                 std::vector<int64_t> RunSettings::*, std::vector<std::string> RunSettings::*,
                 CodecSchedule RunSettings::*, BackendOptions RunSettings::*, const TrainingField*>;

struct RunField {
  SettingFlag flag;
  RunMember member;
  SettingRange range;
};

// The fields in the order in which they are stored and listed.
absl::Span<const RunField> RunFields();

// Calls fn with the field's value, a reference into `settings` (RunSettings, const or not).
template <typename Settings, typename Fn>
decltype(auto) VisitSetting(const RunField& field, Settings& settings, const Fn& fn) {
  return std::visit(
      [&](auto member) -> decltype(auto) {
        if constexpr (std::is_same_v<decltype(member), const TrainingField*>) {
          return std::visit(
              [&](auto inner) -> decltype(auto) { return fn(settings.training.*inner); },
              member->member);
        } else {
          return fn(settings.*member);
        }
      },
      field.member);
}

// Whether the value is still to be found by central (SettingFlag::fallback).
bool IsLeftOut(const RunField& field, const RunSettings& settings);
// Whether the value is not the one that a user has who gives no flag.
bool IsGiven(const RunField& field, const RunSettings& settings);

// The value as a user writes it, which SetFromText reads: "0.1", "3,2,1".
std::string SettingText(const RunField& field, const RunSettings& settings);
// InvalidArgument names flag, text and what would be right.
absl::Status SetFromText(const RunField& field, absl::string_view text, RunSettings& settings);
// The form of a value for SetFromText, for people: "INTEGER".
absl::string_view ValueName(const RunField& field);
// Of a list, which may be written as several words: what stands between two of them in one text.
// Empty: it is no list.
absl::string_view ListSeparator(const RunField& field);

// InvalidArgument "--FLAG VALUE: must be ..." for a value that is out of its row's range.
absl::Status CheckField(const RunField& field, const RunSettings& settings);

}  // namespace runnel
