#include "worker/stash.h"

#include <algorithm>
#include <utility>

namespace runnel {

Stash::Stash(int64_t parameter_bytes, int64_t activation_bytes)
    : parameter_bytes_(parameter_bytes), activation_bytes_(activation_bytes) {
  versions_.push_back({Arena(parameter_bytes), 0});
}

Stash::Entry& Stash::Push(const MicroBatch& place) {
  Entry& entry = entries_.emplace_back();
  entry.place = place;
  entry.version_slot = newest_;
  ++versions_[newest_].users;
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
  const auto dead = std::find_if(versions_.begin(), versions_.end(),
                                 [](const Version& v) { return v.users == 0; });
  next_ = static_cast<int32_t>(dead - versions_.begin());
  if (dead == versions_.end()) versions_.push_back({Arena(parameter_bytes_), 0});
  return versions_[next_].weights.data();
}

void Stash::Publish() { newest_ = next_; }

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
