#include "central/settings/milestone_shares.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/base/training/rates/rate.h"

namespace runnel {
namespace {

absl::StatusOr<double> PercentOf(absl::string_view part) {
  if (!absl::ConsumeSuffix(&part, "%"))
    return absl::InvalidArgumentError("are epochs and shares: give all as epochs or all with %");
  double percent = 0;
  if (absl::SimpleAtod(part, &percent) && percent > 0 && percent < 100) return percent;
  return absl::InvalidArgumentError(absl::StrCat("'", absl::CHexEscape(part),
                                                 "%' is no share between 0% and 100%; give them as "
                                                 "50%,75%"));
}

}  // namespace

bool AreShares(absl::string_view milestones) { return absl::StrContains(milestones, '%'); }

absl::StatusOr<std::string> RateOfShares(absl::string_view milestones) {
  const Rate rate = MultiStepRate();
  const size_t most = rate.choice.parameters().size();
  std::vector<double> shares;
  for (const absl::string_view part : absl::StrSplit(milestones, ',', absl::SkipWhitespace())) {
    const absl::StatusOr<double> percent = PercentOf(part);
    if (!percent.ok()) return percent.status();
    const double share = *percent / 100;
    if (!shares.empty() && share <= shares.back())
      return absl::InvalidArgumentError("must be in ascending order");
    shares.push_back(share);
  }
  if (shares.size() > most)
    return absl::InvalidArgumentError(absl::StrCat("are more than ", most, " shares"));
  // The rate has defaults for what is left out; a share of 1 is never reached.
  while (shares.size() < most && rate.choice.parameters()[shares.size()].fallback < 1)
    shares.push_back(1);
  return absl::StrCat(rate.choice.name, ":", absl::StrJoin(shares, ","));
}

}  // namespace runnel
