#pragma once

// Divides a run's samples into optimizer steps and micro-batches. A pure function of the run's
// settings, so that central and every worker know each micro-batch's size, epoch and place in its
// step from its sequence number alone.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/ids.h"

namespace runnel {

// One micro-batch's place.
struct MicroBatch {
  Sequence sequence;
  int64_t step = 0;   // optimizer step, counted over the run, 0-based
  int64_t epoch = 0;  // 0-based
  int64_t step_in_epoch = 0;
  int64_t first_sample = 0;  // position in the epoch's permutation
  int64_t samples = 0;       // samples of this micro-batch
  int64_t step_samples = 0;  // samples of the whole mini-batch, by which the gradient is divided
  bool first_in_step = false;
  bool last_in_step = false;
  bool first_in_epoch = false;  // codecs restart here
};

class Batching {
 public:
  // dataset_samples, batch_size, micro_batches >= 1. min_samples: the fewest samples a micro-batch
  // may have (2 with batch norm, else 1); a last mini-batch with fewer is dropped. InvalidArgument
  // names the field. The last, partial mini-batch of an epoch is trained. A mini-batch is split as
  // evenly as possible, larger parts first, into min(micro_batches, samples / min_samples)
  // micro-batches.
  static absl::StatusOr<Batching> Create(int64_t dataset_samples, int64_t batch_size,
                                         int64_t micro_batches, int64_t min_samples);

  int64_t steps_per_epoch() const { return full_steps_ + (last_samples_ > 0 ? 1 : 0); }
  int64_t sequences_per_epoch() const { return full_steps_ * full_parts_ + last_parts_; }
  MicroBatch Locate(Sequence sequence) const;
  // The first sequence of a step; of the step after the last one this is the number of sequences
  // before it.
  Sequence FirstSequence(int64_t step) const;
  // The distinct micro-batch sizes, largest first: shapes are agreed on for these.
  std::vector<int64_t> MicroBatchSizes() const;

 private:
  Batching() = default;
  int64_t batch_size_ = 0;
  int64_t full_steps_ = 0;    // steps of batch_size samples an epoch
  int64_t full_parts_ = 0;    // micro-batches of a full step
  int64_t last_samples_ = 0;  // samples of the partial step, 0: none
  int64_t last_parts_ = 0;
};

}  // namespace runnel
