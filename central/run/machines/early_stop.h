#pragma once

// Ends a run whose evaluations do not get better any more (--early-stop). Pure. What it has seen is
// kept by the step of the evaluation: a recovery takes it back, a check-point takes it along.

#include <cstdint>
#include <iterator>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "central/run/machines/run_effects.h"

namespace runnel {

class EarlyStop {
 public:
  // The name of its state among those of the rules in a check-point.
  static constexpr absl::string_view kName = "early_stop";

  // Never.
  EarlyStop() : EarlyStop(0, false) {}
  // After so many evaluations in a row without a new best accuracy; by_loss: without a new least loss.
  // 0: never.
  EarlyStop(int64_t patience, bool by_loss);

  void Add(int64_t step, const EvaluationFigures& figures);
  // Training goes on from this step: later evaluations will be repeated.
  void GoBackTo(int64_t step);
  bool is_on() const { return patience_ > 0; }
  bool is_due() const { return MayBeDueAfter(0); }
  // Whether evaluations of earlier steps than this one have made it so.
  bool WasDueBefore(int64_t step) const {
    return is_on() && std::prev(seen_.lower_bound(step))->second.without >= patience_;
  }
  // Whether it is if so many further evaluations bring no new best. The first of all is one.
  bool MayBeDueAfter(int64_t evaluations) const {
    const Seen& seen = seen_.rbegin()->second;
    return is_on() && seen.without + evaluations - (seen.any ? 0 : 1) >= patience_;
  }

  // Behind the evaluations up to this step: "BEST COUNT", or empty before any.
  std::string StateAt(int64_t step) const;
  // Goes on with the state of a check-point. InvalidArgument: it is none.
  absl::Status Restore(absl::string_view state);

 private:
  struct Seen {
    bool any = false;
    double best = 0;      // accuracy, or minus the loss
    int64_t without = 0;  // evaluations since then
  };

  int64_t patience_;
  bool by_loss_;
  std::map<int64_t, Seen> seen_;  // behind the evaluation of this step; -1: before any
};

}  // namespace runnel
