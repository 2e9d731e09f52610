#include "proto/base/training/batching.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"

namespace runnel {

absl::StatusOr<Batching> Batching::Create(int64_t dataset_samples, int64_t batch_size,
                                          int64_t micro_batches, int64_t min_samples) {
  if (batch_size < 1)
    return absl::InvalidArgumentError(absl::StrCat("batch size ", batch_size, " is below 1"));
  if (micro_batches < 1)
    return absl::InvalidArgumentError(absl::StrCat("micro-batches ", micro_batches, " is below 1"));
  if (min_samples < 1) return absl::InvalidArgumentError("min_samples is below 1");
  if (dataset_samples < min_samples) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the data set has ", dataset_samples, " samples, the model needs at least ", min_samples));
  }
  if (batch_size < min_samples) {
    return absl::InvalidArgumentError(absl::StrCat("batch size ", batch_size, " is below ",
                                                   min_samples,
                                                   ", the least that batch norm can train on"));
  }
  Batching batching;
  batching.batch_size_ = std::min(batch_size, dataset_samples);
  batching.full_steps_ = dataset_samples / batching.batch_size_;
  batching.full_parts_ = std::min(micro_batches, batching.batch_size_ / min_samples);
  batching.last_samples_ = dataset_samples % batching.batch_size_;
  if (batching.last_samples_ < min_samples) batching.last_samples_ = 0;
  batching.last_parts_ = std::min(micro_batches, batching.last_samples_ / min_samples);
  return batching;
}

MicroBatch Batching::Locate(Sequence sequence) const {
  MicroBatch place;
  place.sequence = sequence;
  place.epoch = sequence.value() / sequences_per_epoch();
  const int64_t within = sequence.value() % sequences_per_epoch();
  const int64_t in_full_steps = full_steps_ * full_parts_;
  int64_t parts = full_parts_;
  int64_t part = 0;
  if (within < in_full_steps) {
    place.step_in_epoch = within / full_parts_;
    part = within % full_parts_;
    place.step_samples = batch_size_;
  } else {
    place.step_in_epoch = full_steps_;
    part = within - in_full_steps;
    parts = last_parts_;
    place.step_samples = last_samples_;
  }
  const int64_t base = place.step_samples / parts;
  const int64_t larger = place.step_samples % parts;
  place.step = place.epoch * steps_per_epoch() + place.step_in_epoch;
  place.samples = base + (part < larger ? 1 : 0);
  place.first_sample = place.step_in_epoch * batch_size_ + part * base + std::min(part, larger);
  place.first_in_step = part == 0;
  place.last_in_step = part == parts - 1;
  place.first_in_epoch = within == 0;
  return place;
}

Sequence Batching::FirstSequence(int64_t step) const {
  const int64_t epoch = step / steps_per_epoch();
  const int64_t within = step % steps_per_epoch();
  return Sequence(epoch * sequences_per_epoch() + within * full_parts_);
}

std::vector<int64_t> Batching::MicroBatchSizes() const {
  std::vector<int64_t> sizes;
  const auto add = [&sizes](int64_t samples, int64_t parts) {
    if (parts == 0) return;
    sizes.push_back((samples + parts - 1) / parts);
    sizes.push_back(samples / parts);
  };
  add(batch_size_, full_parts_);
  add(last_samples_, last_parts_);
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

}  // namespace runnel
