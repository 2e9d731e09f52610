#include "central/settings/gradient_bits_setting.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<GradientBitsSetting> ParseGradientBitsSetting(absl::string_view text) {
  GradientBitsSetting setting;
  const std::pair<absl::string_view, absl::string_view> rule =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  if (rule.first.size() < text.size() && absl::ascii_isalpha(static_cast<unsigned char>(text[0]))) {
    const std::pair<absl::string_view, absl::string_view> value =
        absl::StrSplit(rule.second, absl::MaxSplits(':', 1));
    if (value.first.size() + 1 == rule.second.size())
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' has nothing behind its colon"));
    setting.rule = std::string(rule.first);
    setting.rule_arguments = std::string(value.second);
    text = value.first;
  }
  RUNNEL_ASSIGN_OR_RETURN(setting.steps, ParseGradientBits(text));
  return setting;
}

}  // namespace runnel
