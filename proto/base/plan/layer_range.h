#pragma once

// A contiguous run of a model's layers: the layers of a stage, and a sub-model of the predictor and
// of AccEPT (section 3.2).

#include <cstddef>
#include <tuple>
#include <vector>

namespace runnel {

struct LayerRange {
  int first_layer = 0;
  int last_layer = 0;  // included

  friend bool operator==(const LayerRange&, const LayerRange&) = default;
  friend bool operator<(const LayerRange& a, const LayerRange& b) {
    return std::tie(a.first_layer, a.last_layer) < std::tie(b.first_layer, b.last_layer);
  }
};

// Layers 0 to `layers` - 1, each by itself.
inline std::vector<LayerRange> EachLayer(int layers) {
  std::vector<LayerRange> ranges;
  for (int layer = 0; layer < layers; ++layer) ranges.push_back({layer, layer});
  return ranges;
}

// Number of ranges of a model with `layers` layers.
constexpr size_t RangeCount(int layers) {
  return static_cast<size_t>(layers) * static_cast<size_t>(layers + 1) / 2;
}

// All ranges, in order of first, then of last layer.
inline std::vector<LayerRange> AllRanges(int layers) {
  std::vector<LayerRange> ranges;
  for (int first = 0; first < layers; ++first) {
    for (int last = first; last < layers; ++last) ranges.push_back({first, last});
  }
  return ranges;
}

// Position of a range of the model in AllRanges(layers).
inline size_t RangeIndex(int layers, const LayerRange& range) {
  // Before the ranges that begin at `first` come those of the layers above: layers, layers - 1, ...
  const auto first = static_cast<size_t>(range.first_layer);
  const size_t before = RangeCount(layers) - RangeCount(layers - range.first_layer);
  return before + static_cast<size_t>(range.last_layer) - first;
}

}  // namespace runnel
