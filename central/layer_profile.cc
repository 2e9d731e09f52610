#include "central/layer_profile.h"

#include <algorithm>

namespace runnel {
namespace {

// What so many leave behind does not stay in caches; more would only take memory.
constexpr int64_t kMostInFlight = 8;

}  // namespace

std::vector<LayerRange> PartsOf(int layers, int parts) {
  std::vector<LayerRange> ranges;
  for (int part = 0; parts < layers && part < parts; ++part)
    ranges.push_back({layers * part / parts, layers * (part + 1) / parts - 1});
  return ranges;
}

std::vector<int64_t> InFlightOfParts(int layers, int parts) {
  std::vector<int64_t> in_flight;
  for (int64_t left = parts; parts < layers && left > 0; --left)
    in_flight.push_back(std::min(left, kMostInFlight));
  return in_flight;
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
