#pragma once

// Collects the stages' states of a barrier into the whole model's: for a check-point and for the
// end of the run. The stages copy their state at the barrier and send it while they train on, so
// several collections may be under way. Pure: events in, effects out.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "central/run/machines/active_plan.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/number_format.h"
#include "proto/base/training/batching.h"

namespace runnel {

class StateCollection {
 public:
  StateCollection(const ModelSpec& model, const NumberFormat& format, const Batching& batching)
      : model_(model), format_(format), batching_(batching) {}

  // Asks all stages, which stand at barrier `step`, for their states.
  void Request(int64_t step, const StateUse& use, const ActivePlan& active, RunEffects& effects);
  // The part of a device, whichever stage it has by now; one that nobody asked for, or that comes
  // twice, counts for nothing. The whole state when it was the last part. Internal: the parts are
  // not the model.
  absl::StatusOr<std::optional<StateCollected>> AddPart(int device, const Snapshot& snapshot);
  // Training goes back from barrier `from` to `step`: parts of collections that have not arrived
  // never will.
  void GoBack(int64_t from, int64_t step);
  // The remaining uses of the state of the barrier that training went back to. Asked when its
  // stages stand there again.
  StateUse TakeMissing() { return std::exchange(missing_, {}); }
  // A state of an earlier step than this one is collected for an evaluation.
  bool EvaluatesBefore(int64_t step) const;
  // Parts are still to come.
  bool under_way() const { return !collections_.empty(); }
  // Whether a state is on its way that is used as soon as it is there, not only kept for a
  // recovery.
  bool is_waited_for() const;
  // Whether a part of this device is still to come.
  bool Awaits(int device) const;

 private:
  struct Collection {
    int64_t step = 0;
    StateUse use;
    Generation generation;
    std::set<int> missing;  // devices
    ModelState state;
  };

  StateUse UseAt(int64_t step) const;

  ModelSpec model_;
  NumberFormat format_;
  Batching batching_;
  std::map<Sequence, Collection> collections_;  // by the sequence of their barrier
  StateUse missing_;
};

}  // namespace runnel
