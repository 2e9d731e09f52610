#include "worker/core/held_stages.h"

#include <algorithm>
#include <utility>

namespace runnel {

void HeldStages::DropCurrent() {
  if (current_ != nullptr) workshop_->Retire(std::move(current_));
}

void HeldStages::DropAside() {
  if (aside_.has_value()) workshop_->Retire(std::move(aside_->host));
  aside_.reset();
}

std::optional<HeldStages::Prepared> HeldStages::Commit(Generation generation) {
  DropCurrent();
  generation_ = generation;
  if (!aside_.has_value() || aside_->generation != generation) return std::nullopt;
  current_ = std::move(aside_->host);
  return std::exchange(aside_, std::nullopt);
}

void HeldStages::TakeBack(Generation generation) {
  taken_back_ = std::max(taken_back_, generation);
  if (aside_.has_value() && aside_->generation == generation) DropAside();
}

void HeldStages::Clear() {
  aside_.reset();
  current_.reset();
}

}  // namespace runnel
