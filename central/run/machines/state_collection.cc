#include "central/run/machines/state_collection.h"

#include <algorithm>
#include <utility>

namespace runnel {

void StateCollection::Request(int64_t step, const StateUse& use, const ActivePlan& active,
                              RunEffects& effects) {
  const Sequence sequence = batching_.FirstSequence(step);
  Collection& collection = collections_[sequence];
  collection = {step, use, active.plan.generation, {}, {}};
  for (const StagePlan& stage : active.plan.stages) collection.missing.insert(stage.sole_device());
  SendToStages(active, SnapshotRequest{active.plan.generation, sequence, use.weights_only()},
               effects);
}

absl::StatusOr<std::optional<StateCollected>> StateCollection::AddPart(int device,
                                                                       const Snapshot& snapshot) {
  const auto found = collections_.find(snapshot.sequence);
  if (found == collections_.end() || found->second.generation != snapshot.generation)
    return std::nullopt;
  Collection& collection = found->second;
  if (collection.missing.erase(device) == 0) return std::nullopt;
  Merge(snapshot.state, collection.state);
  if (!collection.missing.empty()) return std::nullopt;
  StateCollected whole{collection.step, collection.use, std::move(collection.state),
                       collection.generation};
  collections_.erase(found);
  const absl::Status status =
      CheckState(whole.state, model_, 0, model_.layer_count() - 1, format_, ZeroTensors::kLeftOut);
  if (!status.ok()) return absl::InternalError(status.message());
  FillZeros(whole.state);
  return whole;
}

void StateCollection::GoBack(int64_t from, int64_t step) {
  StateUse use = UseAt(step);
  // The run does not end there any more, or ends there anew.
  use.final = false;
  // After a further loss from the same barrier nobody has asked for it again yet.
  if (use.any() || from != step) missing_ = use;
  collections_.clear();
}

// The uses of this step's state that is not complete yet.
StateUse StateCollection::UseAt(int64_t step) const {
  for (const auto& [sequence, collection] : collections_) {
    if (collection.step == step) return collection.use;
  }
  return {};
}

bool StateCollection::EvaluatesBefore(int64_t step) const {
  return std::any_of(collections_.begin(), collections_.end(), [step](const auto& entry) {
    return entry.second.step < step && entry.second.use.evaluation;
  });
}

bool StateCollection::is_waited_for() const {
  return std::any_of(collections_.begin(), collections_.end(), [](const auto& entry) {
    const StateUse& use = entry.second.use;
    return use.checkpoint || use.evaluation || use.final;
  });
}

bool StateCollection::Awaits(int device) const {
  return std::any_of(collections_.begin(), collections_.end(),
                     [device](const auto& entry) { return entry.second.missing.contains(device); });
}

}  // namespace runnel
