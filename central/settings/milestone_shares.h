#pragma once

// --milestones as shares of a run's length: "50%,75%".

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

// Whether the text of --milestones means shares: one of its parts has a %.
bool AreShares(absl::string_view milestones);

// The --rate that says the same: "multi_step:0.5,0.75" for "50%,75%", so that there is one course of
// the rate by shares, also where a run trains on (D176). InvalidArgument says what is wrong: parts
// with and without %, a share that is no number between 0 and 100 %, an order that does not ascend,
// more shares than multi_step takes.
absl::StatusOr<std::string> RateOfShares(absl::string_view milestones);

}  // namespace runnel
