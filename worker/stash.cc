#include "worker/stash.h"

#include <algorithm>
#include <utility>

namespace runnel {

Stash::Stash(int64_t parameter_bytes, int64_t activation_bytes)
    : parameter_bytes_(parameter_bytes), activation_bytes_(activation_bytes) {
  versions_.push_back({Arena(parameter_bytes)});
}

Stash::Entry& Stash::Push(const MicroBatch& place) { return PushSlot(place, newest_); }

Stash::Entry& Stash::PushWithOwnWeights(const MicroBatch& place) {
  const int32_t slot = Dead();
  versions_[slot].number = -1;
  return PushSlot(place, slot);
}

Stash::Entry& Stash::PushSlot(const MicroBatch& place, int32_t slot) {
  Entry& entry = entries_.emplace_back();
  entry.place = place;
  entry.version_slot = slot;
  ++versions_[slot].users;
  if (free_activations_.empty()) {
    entry.activations = std::make_unique<Arena>(activation_bytes_);
  } else {
    entry.activations = std::move(free_activations_.back());
    free_activations_.pop_back();
  }
  return entry;
}

void Stash::Pop() {
  Entry& entry = entries_.front();
  --versions_[entry.version_slot].users;
  free_activations_.push_back(std::move(entry.activations));
  entries_.pop_front();
}

std::byte* Stash::NextVersion() {
  next_ = newest_;
  if (versions_[newest_].users == 0) return newest();
  next_ = Dead();
  return versions_[next_].weights.data();
}

void Stash::Publish() {
  newest_ = next_;
  versions_[newest_].number = ++published_;
}

int32_t Stash::Dead() {
  for (size_t i = 0; i < versions_.size(); ++i) {
    const auto slot = static_cast<int32_t>(i);
    if (versions_[i].users == 0 && slot != newest_) return slot;
  }
  versions_.push_back({Arena(parameter_bytes_)});
  return static_cast<int32_t>(versions_.size()) - 1;
}

std::vector<const std::byte*> Stash::NewestVersions(int64_t count) const {
  std::vector<const Version*> alive;
  for (size_t i = 0; i < versions_.size(); ++i) {
    const bool newest = static_cast<int32_t>(i) == newest_;
    if (newest || (versions_[i].users > 0 && versions_[i].number >= 0))
      alive.push_back(&versions_[i]);
  }
  if (static_cast<int64_t>(alive.size()) < count) return {};
  std::sort(alive.begin(), alive.end(),
            [](const Version* a, const Version* b) { return a->number > b->number; });
  std::vector<const std::byte*> result;
  for (int64_t i = 0; i < count; ++i) {
    if (alive[i]->number != alive[0]->number - i) return {};
    result.push_back(alive[i]->weights.data());
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

int64_t Stash::held_bytes() const {
  const int64_t pieces = static_cast<int64_t>(entries_.size() + free_activations_.size());
  return parameter_bytes_ * static_cast<int64_t>(versions_.size()) + activation_bytes_ * pieces;
}

}  // namespace runnel
