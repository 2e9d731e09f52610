#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/run/coordinator.h"

namespace runnel {

// Moving layers to other devices at a barrier, in two phases.

// Phase one: each stage hands over what others will have.
bool Coordinator::BeginMove(ChangePlan change) {
  Plan& plan = change.plan;
  plan.generation = Generation(plan_.generation.value() + 1);
  if (absl::Status status = CheckPlan(plan, options_.model); !status.ok()) {
    effects_.push_back(
        LogLine{Severity::kWarning, absl::StrCat("the new plan is no plan: ", status.message())});
    return false;
  }
  if (plan.stages == plan_.stages && plan.links == plan_.links) return false;
  phase_ = Phase::kMoving;
  move_ = Move{std::move(plan),
               std::move(change.why),
               std::move(change.times),
               {},
               static_cast<int>(plan_.stages.size()),
               0};
  for (size_t i = 0; i < plan_.stages.size(); ++i) {
    const StagePlan& old = plan_.stages[i];
    FetchLayers fetch{move_->plan.generation, {}};
    for (const StagePlan& stage : move_->plan.stages) {
      const int first = std::max(stage.first_layer, old.first_layer);
      const int last = std::min(stage.last_layer, old.last_layer);
      if (first <= last && stage.device != old.device) fetch.ranges.push_back({first, last});
    }
    Send(static_cast<int>(i), std::move(fetch));
  }
  return true;
}

void Coordinator::On(int, const LayersFetched& fetched) {
  if (phase_ != Phase::kMoving || fetched.generation != move_->plan.generation) return;
  if (move_->fetching == 0) return;
  Merge(fetched.state, move_->state);
  if (--move_->fetching == 0) PrepareAside();
}

void Coordinator::PrepareAside() {
  const Plan& plan = move_->plan;
  move_->preparing = static_cast<int>(plan.stages.size());
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    PrepareStage message = StageMessage(plan, i);
    message.aside = true;
    message.state = Slice(move_->state, stage.first_layer, stage.last_layer);
    // It keeps what it has.
    const int old = StageOfDevice(stage.device.value());
    if (old >= 0) {
      const StagePlan& own = plan_.stages[old];
      std::erase_if(message.state.layers, [&](const LayerState& layer) {
        return own.first_layer <= layer.layer && layer.layer <= own.last_layer;
      });
    }
    effects_.push_back(SendControl{devices_[stage.device.value()].connection, std::move(message)});
  }
}

// Phase two. From here on there is no way back: the old stages are dropped.
void Coordinator::Prepared(const StagePrepared& prepared) {
  if (phase_ != Phase::kMoving || prepared.generation != move_->plan.generation) return;
  if (move_->preparing == 0 || --move_->preparing > 0) return;
  plan_ = std::move(move_->plan);
  effects_.push_back(LogLine{Severity::kInfo, absl::StrCat("layers move at ", move_->why)});
  const std::vector<DeviceTimes> times = std::move(move_->times);
  move_.reset();
  PersistPlan(times.empty() ? times_ : times);
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (lost_[i]) continue;
    effects_.push_back(SendControl{devices_[i].connection, CommitMove{plan_.generation}});
  }
  ResetStages();
  ConnectTheFeed();
}

// After a move that was taken back.
void Coordinator::GoOn() {
  if (stop_requested_) return CollectFinal();
  GrantNext();
}

// The old plan goes on as if nothing had been.
void Coordinator::TakeMoveBack(absl::string_view why) {
  const Generation generation = move_->plan.generation;
  move_.reset();
  effects_.push_back(
      LogLine{Severity::kWarning,
              absl::StrCat("the layers stay where they are at step ", step_, ": ", why)});
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (lost_[i]) continue;
    effects_.push_back(SendControl{devices_[i].connection, AbortMove{generation}});
  }
}

}  // namespace runnel
