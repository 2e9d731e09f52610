#include "central/data/batch_source.h"

#include <numeric>
#include <utility>

#include "proto/base/random.h"

namespace runnel {
namespace {

void CopyInto(const Dataset& dataset, int64_t index, int64_t slot, absl::Span<float> samples,
              absl::Span<int32_t> labels) {
  const int64_t elements = dataset.sample_shape().elements();
  if (!samples.empty()) dataset.CopySample(index, samples.subspan(slot * elements, elements));
  if (!labels.empty()) labels[slot] = dataset.label(index);
}

}  // namespace

std::vector<int64_t> EpochPermutation(int64_t samples, uint64_t run_seed, int64_t epoch) {
  std::vector<int64_t> order(samples);
  std::iota(order.begin(), order.end(), int64_t{0});
  const CounterRandom random(run_seed, RandomPurpose::kShuffle, 0, static_cast<uint64_t>(epoch));
  for (int64_t i = samples - 1; i > 0; --i) {
    std::swap(order[i], order[random.Below(i, static_cast<uint32_t>(i + 1))]);
  }
  return order;
}

void BatchSource::Fill(const MicroBatch& place, absl::Span<float> samples,
                       absl::Span<int32_t> labels) {
  if (place.epoch != epoch_) {
    order_ = EpochPermutation(dataset_.size(), run_seed_, place.epoch);
    epoch_ = place.epoch;
  }
  for (int64_t i = 0; i < place.samples; ++i) {
    CopyInto(dataset_, order_[place.first_sample + i], i, samples, labels);
  }
}

void BatchSource::FillTest(int64_t first, int64_t count, absl::Span<float> samples,
                           absl::Span<int32_t> labels) const {
  for (int64_t i = 0; i < count; ++i) CopyInto(dataset_, first + i, i, samples, labels);
}

}  // namespace runnel
