#pragma once

// Data sets that lie in memory: images as bytes, signals as floats.

#include <cstdint>
#include <vector>

#include "central/data/dataset.h"

namespace runnel::data {

using runnel::ChannelScale;

// Images (C,H,W) of one byte a pixel, normalised on the way out: (x / 255 - mean) / deviation.
class ImageDataset final : public Dataset {
 public:
  // pixels: labels.size() samples one behind the other; one scale a channel; labels in [0,
  // classes).
  ImageDataset(Shape sample, int64_t classes, std::vector<ChannelScale> scales,
               std::vector<uint8_t> pixels, std::vector<uint8_t> labels);

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  const Shape& sample_shape() const override { return shape_; }
  int64_t classes() const override { return classes_; }
  void CopySample(int64_t index, absl::Span<float> out) const override;
  float outside(int64_t channel) const override { return table_[channel * 256]; }
  int32_t label(int64_t index) const override { return labels_[index]; }
  // As a folder of pictures.
  DataDescription Describe() const override;

  // One sample's bytes as given.
  absl::Span<const uint8_t> pixels(int64_t index) const;

 private:
  Shape shape_;
  int64_t classes_;
  std::vector<ChannelScale> scales_;
  std::vector<float> table_;  // [channel][256]: the normalised value of each byte
  std::vector<uint8_t> pixels_;
  std::vector<uint8_t> labels_;
};

// Signals (C,L) that are normalised already. scales: by channel, of what they were before; empty:
// they are as they were.
class SignalDataset final : public Dataset {
 public:
  SignalDataset(Shape sample, int64_t classes, std::vector<float> values,
                std::vector<uint8_t> labels, std::vector<ChannelScale> scales = {});

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  const Shape& sample_shape() const override { return shape_; }
  int64_t classes() const override { return classes_; }
  void CopySample(int64_t index, absl::Span<float> out) const override;
  int32_t label(int64_t index) const override { return labels_[index]; }
  // As an array.
  DataDescription Describe() const override;

 private:
  Shape shape_;
  int64_t classes_;
  std::vector<float> values_;
  std::vector<uint8_t> labels_;
  std::vector<ChannelScale> scales_;
};

// MNIST's scale, which the synthetic digits share.
inline constexpr ChannelScale kMnistScale = {0.1307, 0.3081};

}  // namespace runnel::data
