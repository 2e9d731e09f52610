#pragma once

// FracTrain's indicator (PFQ): whether the training loss still moves. It looks at the mean loss of
// one period after the other.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

struct LossIndicatorOptions {
  double eps = 0.05;        // largest distance of losses that counts as standing still
  double alpha = 0.3;       // factor of eps after each turn
  int64_t every_steps = 0;  // a period; 0: from one regular barrier to the next
  int64_t most_turns = 3;
  // Share of the run by which the last turn has come, and those in front of it at even parts of it,
  // whatever the loss does; 0: none has to.
  double latest = 0;
};

// "EPS,ALPHA,EVERY[,LATEST]", each of which may be empty: the default; "" as a whole, too. most_turns
// stays.
// InvalidArgument names what does not fit.
absl::StatusOr<LossIndicatorOptions> ParseLossIndicator(absl::string_view text);

// A value.
class LossIndicator {
 public:
  static constexpr size_t kPeriods = 5;         // losses that are compared
  static constexpr int64_t kScalePeriods = 10;  // of the run's first ones, whose mean is the scale

  explicit LossIndicator(const LossIndicatorOptions& options)
      : options_(options), eps_(options.eps) {}

  // The mean loss of the next period, at whose end this share of the run is done (0: not known).
  // True: a turn, since none of the last 5 losses since the last turn is farther than eps times the
  // scale from this one, or since it is due. Nothing turns after the last turn.
  bool Observe(double loss, double run_share = 0);

  int64_t turns() const { return turns_; }
  double eps() const { return eps_; }  // after what was observed
  double scale() const;                // NaN before any loss
  // The largest distance over the scale at the last call; none: fewer than 5 losses, or no turn is
  // left.
  const std::optional<double>& distance() const { return distance_; }

  std::string State() const;
  absl::Status Restore(absl::string_view state);

 private:
  LossIndicatorOptions options_;
  double eps_;
  std::vector<double> losses_;  // at most kPeriods
  double scale_sum_ = 0;
  int64_t scale_periods_ = 0;
  int64_t turns_ = 0;
  std::optional<double> distance_;
};

}  // namespace runnel
