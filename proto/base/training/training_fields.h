#pragma once

// The one table of training settings: a row a member of TrainingSettings. The row drives the flag
// of `runnel-central train` with its line in --help, the config file, the JSON of journals and
// check-points, and the message to workers. So a new setting is a member
// (proto/base/training/training.h), a row here, and the code that uses the member.
//
// Plain data and pure functions; any thread.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/setting_row.h"
#include "proto/base/training/training.h"

namespace runnel {

using TrainingMember =
    std::variant<uint64_t TrainingSettings::*, int64_t TrainingSettings::*,
                 double TrainingSettings::*, std::vector<int64_t> TrainingSettings::*,
                 std::string TrainingSettings::*,
                 std::vector<GradientBitsStep> TrainingSettings::*>;

struct TrainingField {
  absl::string_view name;  // in journals, check-points and messages: "learning_rate"
  TrainingMember member;
  SettingRange range;  // range of the bits of GradientBitsStep: CheckGradientBits
  // Whether every record and message has it. A field that was added later is stored only where it
  // differs from its initial value, so that older journals and check-points stay readable.
  bool always_stored = false;
  bool floating_only = false;  // integer recipes do not look at it
  SettingFlag flag = {};
  // The initial value is that of this other member, which stands in a row before.
  double TrainingSettings::*initially = nullptr;
  // Check of a text with a grammar of its own, in place of the range; its error names the allowed
  // texts.
  absl::Status (*check)(absl::string_view text) = nullptr;
};

absl::Span<const TrainingField> TrainingFields();
// Null for a name that no row has.
const TrainingField* FindTrainingField(absl::string_view name);

// The settings of a user without flags: -1, or an empty text, where a row's flag has a fallback.
TrainingSettings TrainingWithoutFlags();

// Whether records and messages hold the field of these settings.
bool IsStored(const TrainingField& field, const TrainingSettings& settings);
// Gives the field its initial value, for a record or message without it. InvalidArgument "NAME: is
// missing" if every record has it.
absl::Status SetMissing(const TrainingField& field, TrainingSettings& settings);

// InvalidArgument "NAME: must be ..." for the first value that is out of its range.
absl::Status CheckTraining(const TrainingSettings& settings);

}  // namespace runnel
