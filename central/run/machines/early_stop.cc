#include "central/run/machines/early_stop.h"

#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace runnel {
namespace {

constexpr int64_t kBeforeAny = -1;

}  // namespace

EarlyStop::EarlyStop(int64_t patience, bool by_loss)
    : patience_(patience), by_loss_(by_loss), seen_{{kBeforeAny, {}}} {}

void EarlyStop::Add(int64_t step, const EvaluationFigures& figures) {
  if (!is_on()) return;
  Seen seen = std::prev(seen_.lower_bound(step))->second;
  const double figure = by_loss_ ? -figures.loss : figures.accuracy;
  // A run that is to end does: evaluations that were under way, or that of its last state, change
  // nothing. A loss that is no number is never better.
  if (seen.without >= patience_) {
    ++seen.without;
  } else if (!seen.any || figure > seen.best) {
    seen = {.any = true, .best = figure, .without = 0};
  } else {
    ++seen.without;
  }
  seen_[step] = seen;
}

void EarlyStop::GoBackTo(int64_t step) { seen_.erase(seen_.upper_bound(step), seen_.end()); }

std::string EarlyStop::StateAt(int64_t step) const {
  const Seen& seen = std::prev(seen_.upper_bound(step))->second;
  return seen.any ? absl::StrFormat("%.17g %d", seen.best, seen.without) : "";
}

absl::Status EarlyStop::Restore(absl::string_view state) {
  if (state.empty()) return absl::OkStatus();
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(state, ' ');
  Seen seen;
  seen.any = true;
  if (!absl::SimpleAtod(parts.first, &seen.best) ||
      !absl::SimpleAtoi(parts.second, &seen.without) || seen.without < 0)
    return absl::InvalidArgumentError(absl::StrCat("'", state, "' is no state of --early-stop"));
  seen_ = {{kBeforeAny, seen}};
  return absl::OkStatus();
}

}  // namespace runnel
