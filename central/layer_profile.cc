#include "central/layer_profile.h"

#include <algorithm>

namespace runnel {
namespace {

// What so many leave behind does not stay in caches; more would only take memory.
constexpr int kMostInFlight = 8;

}  // namespace

std::vector<LayerRange> LayersAndParts(int layers, int parts) {
  std::vector<LayerRange> ranges;
  for (int layer = 0; layer < layers; ++layer) ranges.push_back({layer, layer});
  if (parts >= layers) return ranges;
  for (int part = 0; part < parts; ++part)
    ranges.push_back({layers * part / parts, layers * (part + 1) / parts - 1});
  return ranges;
}

std::vector<int64_t> InFlightOfParts(int layers, int parts) {
  std::vector<int64_t> in_flight(static_cast<size_t>(layers), 1);
  if (parts >= layers) return in_flight;
  for (int part = 0; part < parts; ++part)
    in_flight.push_back(std::min(parts - part, kMostInFlight));
  return in_flight;
}

std::vector<double> LayersWithinParts(const std::vector<LayerRange>& ranges,
                                      const std::vector<double>& seconds) {
  // The layers come first, and the last range ends with the last of them.
  const int layers = ranges.back().last_layer + 1;
  std::vector<double> scaled(seconds.begin(), seconds.begin() + layers);
  for (size_t i = static_cast<size_t>(layers); i < ranges.size(); ++i) {
    double sum = 0;
    for (int layer = ranges[i].first_layer; layer <= ranges[i].last_layer; ++layer)
      sum += seconds[layer];
    if (sum <= 0 || seconds[i] <= 0) continue;
    for (int layer = ranges[i].first_layer; layer <= ranges[i].last_layer; ++layer)
      scaled[layer] *= seconds[i] / sum;
  }
  return scaled;
}

}  // namespace runnel
