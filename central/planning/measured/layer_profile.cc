#include "central/planning/measured/layer_profile.h"

#include <algorithm>

#include "proto/base/plan/layer_range.h"

namespace runnel {
namespace {

// The tensors of this many micro-batches exceed the caches; more would only take memory.
constexpr int64_t kMostInFlight = 8;
// Ranges of a model of up to six layers: the papers' small ones.
constexpr size_t kMostRanges = 21;

}  // namespace

std::vector<LayerRange> PartsOf(int layers, int devices) {
  if (devices >= layers) return {};
  if (devices > 1 && RangeCount(layers) <= kMostRanges) return AllRanges(layers);
  std::vector<LayerRange> ranges;
  for (int part = 0; part < devices; ++part)
    ranges.push_back({layers * part / devices, layers * (part + 1) / devices - 1});
  return ranges;
}

int64_t InFlightOf(const LayerRange& range, int layers, int devices) {
  if (range.last_layer + 1 == layers) return 1;
  const int before = (range.first_layer * devices + layers - 1) / layers;
  return std::clamp<int64_t>(devices - before, 1, kMostInFlight);
}

std::vector<double> LayersWithinParts(std::vector<double> layer_seconds,
                                      const std::vector<LayerRange>& parts,
                                      const std::vector<double>& part_seconds) {
  for (size_t i = 0; i < parts.size(); ++i) {
    double sum = 0;
    for (int layer = parts[i].first_layer; layer <= parts[i].last_layer; ++layer)
      sum += layer_seconds[layer];
    if (sum <= 0 || part_seconds[i] <= 0) continue;
    for (int layer = parts[i].first_layer; layer <= parts[i].last_layer; ++layer)
      layer_seconds[layer] *= part_seconds[i] / sum;
  }
  return layer_seconds;
}

}  // namespace runnel
