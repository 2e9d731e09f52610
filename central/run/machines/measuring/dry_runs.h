#pragma once

// Dry runs at barriers: micro-batches go forth and back without a step, exactly and with the plan's
// codecs; the stages' gradients tell what the codecs add to the noise that mini-batches have anyway
// (proto/base/training/codecs/gradient_noise.h). The first one at some step, others when the loss has halved
// or codecs have changed, each with all codecs of the plan at once; the barriers behind it have one
// each with the codecs of one way of one link, in turn (central/planning/noise_by_way.h). All
// together take a share of the run's time, of which the ways leave half to the others. Weights do not
// depend on them, but plans do. Pure: events in, effects out.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "central/planning/barrier_report.h"
#include "central/planning/noise_by_way.h"
#include "central/records/journal.h"
#include "central/records/loss_since.h"
#include "central/run/machines/active_plan.h"
#include "proto/base/training/batching.h"
#include "proto/base/training/codecs/link_levels.h"

namespace runnel {

struct DryRunOptions {
  // Steps before the first one: 0 leaves it to the cost; above 0 the cost does not matter, but for
  // ways from the second time on; below 0 there is none.
  int64_t from_step = -1;
  int64_t stop_step = 0;
  double most_share = 0.005;  // of the run's time, for all of them
  int64_t micro_batches = 4;  // of one
  int64_t least_step = 200;   // before the first one, with from_step 0
  LinkLevels levels = {};     // of codec `recipe`
  NoisePlaces places = {};    // of the model
};

class DryRuns {
 public:
  // The name of its state among those of the rules in a check-point.
  static constexpr absl::string_view kName = "gradient_noise";

  DryRuns(const DryRunOptions& options, const Batching& batching)
      : options_(options), batching_(batching) {}

  // At a barrier, of which `report` is, at this time by central's clock: begins a dry run if one is
  // due. True: it is under way.
  bool Begin(const BarrierReport& report, int64_t now_ns, const ActivePlan& active,
             RunEffects& effects);
  bool under_way() const { return !awaited_.empty(); }
  // The measurement, when the last stage has reported; not journalled yet. Reports of other plans or
  // dry runs count for nothing.
  std::optional<NoiseMeasured> Add(size_t stage, const DryRunDone& done, const ActivePlan& active);
  // Training goes on from the barrier at `step`; a dry run that is under way is given up.
  void GoBackTo(int64_t step);

  // Behind the barrier at `step`; empty before the first measurement.
  std::string StateAt(int64_t step) const;
  // Goes on with the state of a check-point. InvalidArgument: it is none.
  absl::Status Restore(absl::string_view state);
  static absl::Status CheckState(absl::string_view state);
  // The last measurement; null: there is none.
  const NoiseMeasured* last() const {
    return measured_.empty() ? nullptr : &measured_.rbegin()->second;
  }

 private:
  struct Pace {
    Generation generation;
    int64_t step = 0;
    int64_t ns = 0;
  };
  // The plan's codecs in this epoch, those of the level in the place of `recipe`.
  Plan CodecsAt(const BarrierReport& report, int64_t epoch) const;
  // Measurements of all codecs up to the barrier at `step`.
  int64_t WholesTo(int64_t step) const;
  // Enough micro-batches are left, and none was tried here.
  bool HasRoom(const BarrierReport& report) const;
  // The measurement that is due, with what is known before it; whole: of all codecs, if it is that.
  std::optional<NoiseMeasured> Due(const BarrierReport& report, NoiseMeasured whole) const;
  bool IsAffordable(const NoiseMeasured& due, const BarrierReport& report, int64_t now_ns) const;

  DryRunOptions options_;
  Batching batching_;
  Pace since_;  // the first barrier of the plan that holds
  LossSince loss_;
  std::map<int64_t, NoiseMeasured> measured_;  // by step
  int64_t earlier_wholes_ = 0;                 // measured before the check-point
  double spent_seconds_ = 0;                   // for all dry runs, also before it
  int64_t tried_step_ = -1;                    // of the last one
  std::set<int> not_finite_;                   // ways of last() that could not be measured
  // Of the one that is under way.
  std::set<size_t> awaited_;  // stages that have not reported
  Sequence first_;
  int64_t begun_ns_ = 0;
  GradientSums sums_;
  NoiseMeasured measuring_;
  int64_t next_ = 0;  // dry sequence
};

// "4 bits forward and 5 back add 2.0 % to the gradients' noise, by measurement (4.8 % by the table)",
// "eden:4 from stage 0 to 1 alone adds 1.2 % ...".
std::string ToString(const NoiseMeasured& noise);

}  // namespace runnel
