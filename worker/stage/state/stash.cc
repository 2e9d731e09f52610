#include "worker/stage/state/stash.h"

#include <algorithm>
#include <utility>

#include "proto/base/status_macros.h"

namespace runnel {

Stash::Stash(AllocateFn allocate, int64_t parameter_bytes, int64_t activation_bytes)
    : allocate_(std::move(allocate)),
      parameter_bytes_(parameter_bytes),
      activation_bytes_(activation_bytes) {}

absl::StatusOr<std::unique_ptr<Stash>> Stash::Create(AllocateFn allocate, int64_t parameter_bytes,
                                                     int64_t activation_bytes) {
  std::unique_ptr<Stash> stash(new Stash(std::move(allocate), parameter_bytes, activation_bytes));
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> weights, stash->allocate_(parameter_bytes));
  stash->versions_.push_back({std::move(weights)});
  return stash;
}

absl::StatusOr<Stash::Entry*> Stash::Push(const MicroBatch& place) {
  return PushSlot(place, newest_);
}

absl::StatusOr<Stash::Entry*> Stash::PushWithOwnWeights(const MicroBatch& place) {
  RUNNEL_ASSIGN_OR_RETURN(const int32_t slot, Dead());
  versions_[slot].number = -1;
  return PushSlot(place, slot);
}

absl::StatusOr<Stash::Entry*> Stash::PushSlot(const MicroBatch& place, int32_t slot) {
  if (free_activations_.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> piece, allocate_(activation_bytes_));
    free_activations_.push_back(std::move(piece));
  }
  Entry& entry = entries_.emplace_back();
  entry.place = place;
  entry.version_slot = slot;
  ++versions_[slot].users;
  entry.activations = std::move(free_activations_.back());
  free_activations_.pop_back();
  return &entry;
}

Stash::Entry* Stash::Find(Sequence sequence) {
  for (Entry& entry : entries_) {
    if (entry.place.sequence == sequence) return &entry;
  }
  return nullptr;
}

void Stash::Pop() {
  Entry& entry = entries_.front();
  --versions_[entry.version_slot].users;
  free_activations_.push_back(std::move(entry.activations));
  entries_.pop_front();
}

absl::StatusOr<Memory*> Stash::NextVersion() {
  next_ = newest_;
  if (versions_[newest_].users == 0) return &newest();
  RUNNEL_ASSIGN_OR_RETURN(next_, Dead());
  return versions_[next_].weights.get();
}

void Stash::Publish() {
  newest_ = next_;
  versions_[newest_].number = ++published_;
}

absl::StatusOr<int32_t> Stash::Dead() {
  for (size_t i = 0; i < versions_.size(); ++i) {
    const auto slot = static_cast<int32_t>(i);
    if (versions_[i].users == 0 && slot != newest_) return slot;
  }
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> weights, allocate_(parameter_bytes_));
  versions_.push_back({std::move(weights)});
  return static_cast<int32_t>(versions_.size()) - 1;
}

std::vector<Memory*> Stash::NewestVersions(int64_t count) const {
  std::vector<const Version*> alive;
  for (size_t i = 0; i < versions_.size(); ++i) {
    const bool newest = static_cast<int32_t>(i) == newest_;
    if (newest || (versions_[i].users > 0 && versions_[i].number >= 0))
      alive.push_back(&versions_[i]);
  }
  if (static_cast<int64_t>(alive.size()) < count) return {};
  std::sort(alive.begin(), alive.end(),
            [](const Version* a, const Version* b) { return a->number > b->number; });
  std::vector<Memory*> result;
  for (int64_t i = 0; i < count; ++i) {
    if (alive[i]->number != alive[0]->number - i) return {};
    result.push_back(alive[i]->weights.get());
  }
  return result;
}

int64_t Stash::live_versions() const {
  int64_t live = 0;
  for (size_t i = 0; i < versions_.size(); ++i) {
    if (versions_[i].users > 0 || static_cast<int32_t>(i) == newest_) ++live;
  }
  return live;
}

int64_t Stash::in_use_bytes() const {
  return activation_bytes_ * in_flight() + parameter_bytes_ * (live_versions() - 1);
}

int64_t Stash::held_bytes() const {
  const int64_t pieces = static_cast<int64_t>(entries_.size() + free_activations_.size());
  return parameter_bytes_ * static_cast<int64_t>(versions_.size()) + activation_bytes_ * pieces;
}

}  // namespace runnel
