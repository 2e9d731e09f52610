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
  for (const BackendCandidate& candidate : candidates) {
    if (!candidate.error.ok()) continue;
    const bool is_first = best == &candidates.front();
    const double limit = best->seconds * (is_first ? 1 - kLeastGain : 1);
    if (!best->error.ok() || candidate.seconds < limit) best = &candidate;
  }
  std::string times;
  for (const BackendCandidate& candidate : candidates) {
    absl::StrAppend(&times, times.empty() ? "" : "; ", candidate.name, " ");
    if (!candidate.error.ok()) {
      absl::StrAppend(&times, "cannot (", candidate.error.message(), ")");
      continue;
    }
    absl::StrAppendFormat(&times, "%.3g ms", 1e3 * candidate.seconds);
    if (&candidate == best || !best->error.ok()) continue;
    const double ratio = candidate.seconds / best->seconds;
    if (ratio >= 1) {
      absl::StrAppendFormat(&times, " (%.3gx slower: left out)", ratio);
    } else {
      absl::StrAppendFormat(&times, " (saves %.2g %%: too little)", 100 * (1 - ratio));
    }
  }
  return {best->name,
          absl::StrCat("backend auto takes ", best->name, ": a micro-batch takes ", times)};
}

}  // namespace runnel
