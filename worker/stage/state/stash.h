#pragma once

// Data that a stage keeps for micro-batches in flight (AccEPT 2.1, "stash"): the weight version
// that each forward used, its saved activations, the boundary tensors that the backward reads
// again, and the scratch between input-gradient and weight-gradient. A weight version lives as long
// as it is the newest or a micro-batch in flight used it; memory of dead versions is used again.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "proto/base/tensor/payload.h"
#include "proto/base/training/batching.h"

namespace runnel {

class Stash {
 public:
  struct Entry {
    MicroBatch place;
    int32_t version_slot = 0;
    std::unique_ptr<Memory> activations;
    Payload input;
    Payload output;
    Payload output_gradient;
    int32_t price_sign = 1;  // StepContext::price_sign of the backward
    // held from its input-gradient to its weight-gradient, else none
    std::unique_ptr<Memory> scratch;
  };

  // Backend::Allocate of the backend that computes.
  using AllocateFn = std::function<absl::StatusOr<std::unique_ptr<Memory>>(int64_t bytes)>;

  // parameter_bytes: of one weight version; activation_bytes: of the largest micro-batch's stash.
  // This and all that need another piece of memory: errors as `allocate`.
  static absl::StatusOr<std::unique_ptr<Stash>> Create(AllocateFn allocate, int64_t parameter_bytes,
                                                       int64_t activation_bytes);

  // The newest weights: what forwards read and the optimizer step changes.
  Memory& newest() const { return *versions_[newest_].weights; }
  // The weights that this entry's forward used.
  Memory& weights(const Entry& entry) const { return *versions_[entry.version_slot].weights; }

  // A micro-batch begins its forward with the newest weights. Ascending sequence. The entry is the
  // stash's and lives until its Pop.
  absl::StatusOr<Entry*> Push(const MicroBatch& place);
  // A micro-batch begins its forward with weights of its own, which the caller fills in.
  absl::StatusOr<Entry*> PushWithOwnWeights(const MicroBatch& place);
  // The oldest micro-batch in flight; there must be one.
  Entry& Oldest() { return entries_.front(); }
  // The micro-batch in flight with this sequence; null if there is none.
  Entry* Find(Sequence sequence);
  // The backward of the oldest one is done. Call before NextVersion of the same micro-batch.
  void Pop();
  // Memory for the weights that an optimizer step makes: the newest itself if no micro-batch in
  // flight uses it, else another piece. Publish makes it the newest.
  absl::StatusOr<Memory*> NextVersion();
  void Publish();
  // The newest `count` published versions, newest first; none if one of them lives no more.
  std::vector<Memory*> NewestVersions(int64_t count) const;

  int64_t in_flight() const { return static_cast<int64_t>(entries_.size()); }
  // Weight versions that are alive, the newest included.
  int64_t live_versions() const;
  // What micro-batches in flight use, but for the newest weights.
  int64_t in_use_bytes() const;
  // Everything that is held, in use or for the next micro-batch.
  int64_t held_bytes() const;

 private:
  Stash(AllocateFn allocate, int64_t parameter_bytes, int64_t activation_bytes);
  // A piece of memory that nobody uses.
  absl::StatusOr<int32_t> Dead();
  absl::StatusOr<Entry*> PushSlot(const MicroBatch& place, int32_t slot);

  struct Version {
    std::unique_ptr<Memory> weights;
    int64_t users = 0;   // micro-batches in flight
    int64_t number = 0;  // in the order of publication; -1: a micro-batch's own, never published
  };

  AllocateFn allocate_;
  int64_t parameter_bytes_;
  int64_t activation_bytes_;
  std::vector<Version> versions_;
  int32_t newest_ = 0;
  int32_t next_ = 0;
  int64_t published_ = 0;
  std::deque<Entry> entries_;
  std::vector<std::unique_ptr<Memory>> free_activations_;
};

}  // namespace runnel
