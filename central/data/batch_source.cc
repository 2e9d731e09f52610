#include "central/data/batch_source.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "central/data/latents/mixed_order.h"
#include "proto/base/training/mixed_label.h"

namespace runnel {

BatchSource::BatchSource(const Dataset& dataset, uint64_t run_seed,
                         const Augmentation& augmentation, int64_t batch_size)
    : dataset_(dataset), run_seed_(run_seed), batch_size_(batch_size), augmentation_(augmentation) {
  if (augmentation_.empty()) return;
  const Shape& shape = dataset_.sample_shape();
  for (int64_t channel = 0; channel < shape[0]; ++channel) {
    outside_.push_back(dataset_.outside(channel));
  }
  sample_.resize(shape.elements());
  other_.resize(shape.elements());
}

// Samples that are wanted with a micro-batch of so many, those of it included: some for each thread,
// and no more than memory should hold.
int64_t BatchSource::MostAhead(int64_t samples) const {
  constexpr int64_t kMostBytes = int64_t{32} << 20;
  constexpr int64_t kEnough = 32;
  const auto each = static_cast<int64_t>(sizeof(float)) * dataset_.sample_shape().elements();
  return std::clamp(kMostBytes / std::max<int64_t>(each, 1), 2 * samples,
                    std::max(4 * samples, kEnough));
}

void BatchSource::Want(const std::vector<int64_t>& indices) {
  if (ahead_ == nullptr) {
    ahead_ = std::make_unique<ReadAhead<std::vector<float>>>([&set = dataset_](int64_t index) {
      std::vector<float> sample(static_cast<size_t>(set.sample_shape().elements()));
      set.CopySample(index, absl::MakeSpan(sample));
      return sample;
    });
  }
  if (indices == wanted_) return;
  wanted_ = indices;
  ahead_->Want(wanted_);
}

std::vector<int64_t> BatchSource::SamplesFrom(const MicroBatch& place) const {
  const int64_t end = std::min(std::ssize(order_), place.first_sample + MostAhead(place.samples));
  std::vector<int64_t> indices;
  for (int64_t i = place.first_sample; i < end; ++i) {
    indices.push_back(order_[i]);
    if (augmentation_.Has(Transform::kMixup))
      indices.push_back(DrawMix(dataset_.size(), run_seed_, epoch_, order_[i]).other);
  }
  return indices;
}

std::vector<int64_t> BatchSource::TestFrom(int64_t first, int64_t count) const {
  std::vector<int64_t> indices(
      static_cast<size_t>(std::min(dataset_.size() - first, MostAhead(count))));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

bool BatchSource::IsReady(const MicroBatch& place) {
  if (!dataset_.reads_files()) return true;
  EnterEpoch(place.epoch);
  const std::vector<int64_t> indices = SamplesFrom(place);
  Want(indices);
  const int64_t each = augmentation_.Has(Transform::kMixup) ? 2 : 1;
  return ahead_->AreThere(absl::MakeConstSpan(indices).subspan(0, place.samples * each));
}

bool BatchSource::IsTestReady(int64_t first, int64_t count) {
  if (!dataset_.reads_files()) return true;
  const std::vector<int64_t> indices = TestFrom(first, count);
  Want(indices);
  return ahead_->AreThere(absl::MakeConstSpan(indices).subspan(0, count));
}

void BatchSource::CopyRead(int64_t index, absl::Span<float> out) {
  if (ahead_ == nullptr) return dataset_.CopySample(index, out);
  const std::shared_ptr<const std::vector<float>> sample = ahead_->Get(index);
  std::copy(sample->begin(), sample->end(), out.begin());
}

void BatchSource::CopyAugmented(int64_t index, absl::Span<float> out) {
  CopyTransformed(index, out);
  if (!augmentation_.Has(Transform::kMixup)) return;
  const Mix mix = DrawMix(dataset_.size(), run_seed_, epoch_, index);
  CopyTransformed(mix.other, absl::MakeSpan(other_));
  MixInto(mix.parts, other_, out);
}

void BatchSource::CopyTransformed(int64_t index, absl::Span<float> out) {
  CopyRead(index, absl::MakeSpan(sample_));
  const Shape& shape = dataset_.sample_shape();
  const SamplePlacement placement = DrawPlacement(augmentation_, run_seed_, epoch_, index);
  if (shape.rank() == 3) {
    CopyImage(shape, placement, outside_, sample_, out);
    if (augmentation_.Has(Transform::kErase))
      Erase(shape, DrawErasure(shape, run_seed_, epoch_, index), outside_, out);
  } else {
    CopySignal(shape, placement, sample_, out);
  }
}

void BatchSource::CopyLabels(int64_t index, int64_t place, absl::Span<int32_t> labels) const {
  if (labels.empty()) return;
  const int64_t each = dataset_.labels_per_sample();
  for (int64_t k = 0; k < each; ++k) labels[place * each + k] = dataset_.label(index * each + k);
}

void BatchSource::EnterEpoch(int64_t epoch) {
  if (epoch == epoch_) return;
  order_ = MixedOrder({dataset_.size(), dataset_.new_samples(), dataset_.session()}, batch_size_,
                      run_seed_, epoch);
  epoch_ = epoch;
}

void BatchSource::Fill(const MicroBatch& place, absl::Span<float> samples,
                       absl::Span<int32_t> labels) {
  EnterEpoch(place.epoch);
  if (dataset_.reads_files() && !samples.empty()) Want(SamplesFrom(place));
  const int64_t elements = dataset_.sample_shape().elements();
  for (int64_t i = 0; i < place.samples; ++i) {
    const int64_t index = order_[place.first_sample + i];
    CopyLabels(index, i, labels);
    if (augmentation_.Has(Transform::kMixup) && !labels.empty()) {
      const Mix mix = DrawMix(dataset_.size(), run_seed_, epoch_, index);
      labels[i] = PackLabel({labels[i], dataset_.label(mix.other), mix.parts});
    }
    if (samples.empty()) continue;
    const absl::Span<float> out = samples.subspan(i * elements, elements);
    if (augmentation_.empty()) {
      CopyRead(index, out);
    } else {
      CopyAugmented(index, out);
    }
  }
}

void BatchSource::FillTest(int64_t first, int64_t count, absl::Span<float> samples,
                           absl::Span<int32_t> labels) {
  if (dataset_.reads_files() && !samples.empty()) Want(TestFrom(first, count));
  const int64_t elements = dataset_.sample_shape().elements();
  for (int64_t i = 0; i < count; ++i) {
    CopyLabels(first + i, i, labels);
    if (!samples.empty()) {
      CopyRead(first + i, samples.subspan(i * elements, elements));
    }
  }
}

}  // namespace runnel
