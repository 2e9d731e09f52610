#pragma once

// A contiguous run of a model's layers: what a stage holds, and what the predictor and AccEPT
// (section 3.2) call a sub-model.

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

}  // namespace runnel
