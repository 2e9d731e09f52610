#include "central/settings/gradient_bits_setting.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int64_t kPlateauBarriers = 5;
constexpr int64_t kMaxPlateauBarriers = 1'000'000;

}  // namespace

absl::StatusOr<GradientBitsSetting> ParseGradientBitsSetting(absl::string_view text) {
  GradientBitsSetting setting;
  if (!absl::ConsumePrefix(&text, "plateau:")) {
    RUNNEL_ASSIGN_OR_RETURN(setting.steps, ParseGradientBits(text));
    return setting;
  }
  int64_t barriers = kPlateauBarriers;
  const size_t colon = text.find(':');
  if (colon != absl::string_view::npos) {
    const absl::string_view count = text.substr(colon + 1);
    if (!absl::SimpleAtoi(count, &barriers) || barriers < 1 || barriers > kMaxPlateauBarriers) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", count, "' is no number of barriers from 1 to ", kMaxPlateauBarriers,
                       "; give plateau:BITS or plateau:BITS:BARRIERS"));
    }
  }
  RUNNEL_ASSIGN_OR_RETURN(setting.steps, ParseGradientBits(text.substr(0, colon)));
  setting.plateau_barriers = barriers;
  return setting;
}

}  // namespace runnel
