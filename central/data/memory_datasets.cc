#include "central/data/memory_datasets.h"

#include <algorithm>
#include <utility>

namespace runnel::data {
namespace {

std::vector<std::string> Names(const Dataset& data) {
  std::vector<std::string> names;
  for (int64_t label = 0; label < data.classes(); ++label) names.push_back(data.class_name(label));
  return names;
}

}  // namespace

ImageDataset::ImageDataset(Shape sample, int64_t classes, std::vector<ChannelScale> scales,
                           std::vector<uint8_t> pixels, std::vector<uint8_t> labels)
    : shape_(std::move(sample)),
      classes_(classes),
      scales_(std::move(scales)),
      pixels_(std::move(pixels)),
      labels_(std::move(labels)) {
  for (const ChannelScale& scale : scales_) {
    for (int x = 0; x < 256; ++x) {
      table_.push_back(static_cast<float>((x / 255.0 - scale.mean) / scale.deviation));
    }
  }
}

DataDescription ImageDataset::Describe() const {
  return {.kind = "images", .sample = shape_, .classes = Names(*this), .scales = scales_};
}

absl::Span<const uint8_t> ImageDataset::pixels(int64_t index) const {
  const int64_t elements = shape_.elements();
  return absl::MakeConstSpan(pixels_).subspan(index * elements, elements);
}

void ImageDataset::CopySample(int64_t index, absl::Span<float> out) const {
  const absl::Span<const uint8_t> in = pixels(index);
  const int64_t plane = shape_.elements() / shape_[0];
  for (int64_t channel = 0; channel < shape_[0]; ++channel) {
    const float* table = &table_[channel * 256];
    for (int64_t i = channel * plane; i < (channel + 1) * plane; ++i) out[i] = table[in[i]];
  }
}

SignalDataset::SignalDataset(Shape sample, int64_t classes, std::vector<float> values,
                             std::vector<uint8_t> labels, std::vector<ChannelScale> scales)
    : shape_(std::move(sample)),
      classes_(classes),
      values_(std::move(values)),
      labels_(std::move(labels)),
      scales_(std::move(scales)) {
  if (scales_.empty()) scales_.resize(static_cast<size_t>(shape_[0]));
}

DataDescription SignalDataset::Describe() const {
  return {.kind = "npy", .sample = shape_, .classes = Names(*this), .scales = scales_};
}

void SignalDataset::CopySample(int64_t index, absl::Span<float> out) const {
  const int64_t elements = shape_.elements();
  std::copy_n(values_.begin() + index * elements, elements, out.begin());
}

}  // namespace runnel::data
