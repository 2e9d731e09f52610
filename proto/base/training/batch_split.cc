#include "proto/base/training/batch_split.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace runnel {

absl::StatusOr<BatchSplitRule> ParseBatchSplit(absl::string_view text) {
  if (text == "off") return BatchSplitRule{};
  if (text == "auto") return BatchSplitRule{BatchSplitMode::kAuto};
  BatchSplitRule rule = {BatchSplitMode::kSummed};
  if (absl::ConsumePrefix(&text, "shifted:")) rule.mode = BatchSplitMode::kShifted;
  if (absl::SimpleAtoi(text, &rule.samples) && rule.samples >= 1 &&
      rule.samples <= kMostSliceSamples) {
    return rule;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("must be off, auto, N or shifted:N, N in 1..", kMostSliceSamples, " samples"));
}

}  // namespace runnel
