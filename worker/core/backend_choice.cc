#include "worker/core/backend_choice.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace runnel {
namespace {

// Less is no reason to leave the processor that has the stage's state.
constexpr double kLeastGain = 0.05;

}  // namespace

BackendChoice ChooseFastest(const std::vector<BackendCandidate>& candidates) {
  const BackendCandidate* best = &candidates.front();
  std::string times;
  for (const BackendCandidate& candidate : candidates) {
    absl::StrAppend(&times, times.empty() ? "" : "; ", candidate.name, " ");
    if (candidate.error.ok()) {
      absl::StrAppendFormat(&times, "%.3g ms", 1e3 * candidate.seconds);
    } else {
      absl::StrAppend(&times, "cannot (", candidate.error.message(), ")");
      continue;
    }
    const bool is_first = best == &candidates.front();
    const double limit = best->seconds * (is_first ? 1 - kLeastGain : 1);
    if (!best->error.ok() || candidate.seconds < limit) best = &candidate;
  }
  return {best->name,
          absl::StrCat("backend auto takes ", best->name, ": a micro-batch takes ", times)};
}

}  // namespace runnel
