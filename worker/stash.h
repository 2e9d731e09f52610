#pragma once

// What a stage keeps for micro-batches in flight (AccEPT 2.1, "stash"): the weight version that
// each forward used, its saved activations, and the boundary tensors that the backward reads again.
// A weight version lives as long as it is the newest or a micro-batch in flight used it; memory of
// dead versions is used again.

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "proto/base/batching.h"
#include "proto/base/payload.h"
#include "worker/arena.h"

namespace runnel {

class Stash {
 public:
  struct Entry {
    MicroBatch place;
    int32_t version_slot = 0;
    std::unique_ptr<Arena> activations;
    Payload input;
    Payload output;
    Payload output_gradient;
  };

  // parameter_bytes: of one weight version; activation_bytes: of the largest micro-batch's stash.
  Stash(int64_t parameter_bytes, int64_t activation_bytes);

  // The newest weights: what forwards read and the optimizer step changes.
  std::byte* newest() const { return versions_[newest_].weights.data(); }
  // The weights that this entry's forward used.
  std::byte* weights(const Entry& entry) const {
    return versions_[entry.version_slot].weights.data();
  }

  // A micro-batch begins its forward with the newest weights. Ascending sequence.
  Entry& Push(const MicroBatch& place);
  // A micro-batch begins its forward with weights of its own, which the caller fills in.
  Entry& PushWithOwnWeights(const MicroBatch& place);
  // The oldest micro-batch in flight; there must be one.
  Entry& Oldest() { return entries_.front(); }
  // Its backward is done. Call before NextVersion of the same micro-batch.
  void Pop();
  // Memory for the weights that an optimizer step makes: the newest itself if no micro-batch in
  // flight uses it, else another piece. Publish makes it the newest.
  std::byte* NextVersion();
  void Publish();
  // The newest `count` published versions, newest first; none if one of them lives no more.
  std::vector<const std::byte*> NewestVersions(int64_t count) const;

  int64_t in_flight() const { return static_cast<int64_t>(entries_.size()); }
  // Weight versions that are alive, the newest included.
  int64_t live_versions() const;
  // Everything that is held, in use or for the next micro-batch.
  int64_t held_bytes() const;

 private:
  // A piece of memory that nobody uses.
  int32_t Dead();
  Entry& PushSlot(const MicroBatch& place, int32_t slot);

  struct Version {
    Arena weights;
    int64_t users = 0;   // micro-batches in flight
    int64_t number = 0;  // in the order of publication; -1: a micro-batch's own, never published
  };

  int64_t parameter_bytes_;
  int64_t activation_bytes_;
  std::vector<Version> versions_;
  int32_t newest_ = 0;
  int32_t next_ = 0;
  int64_t published_ = 0;
  std::deque<Entry> entries_;
  std::vector<std::unique_ptr<Arena>> free_activations_;
};

}  // namespace runnel
