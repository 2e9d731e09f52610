#include "central/run/machines/measuring/second_times.h"

#include <algorithm>
#include <numeric>

namespace runnel {

std::vector<LayerRange> RunsAlikeInTime(const std::vector<double>& layer_seconds, int count) {
  const auto layers = static_cast<int>(layer_seconds.size());
  const int runs = std::min(count, layers);
  const double all = std::accumulate(layer_seconds.begin(), layer_seconds.end(), 0.0);
  std::vector<LayerRange> ranges;
  double before = 0;
  int layer = 0;
  for (int run = 0; run < runs; ++run) {
    const int first = layer;
    const int most = layers - (runs - 1 - run);  // a layer is left for each run behind
    const double end = all * (run + 1) / runs;
    do {
      before += layer_seconds[static_cast<size_t>(layer++)];
      // The next layer ends a run whose end is nearer without it.
    } while (layer < most &&
             (run + 1 == runs || before + layer_seconds[static_cast<size_t>(layer)] / 2 <= end));
    ranges.push_back({first, layer - 1});
  }
  return ranges;
}

double SecondTimes::ScaleOf(const std::vector<int>& devices, int64_t processors) const {
  double shares = 0;
  for (const auto& [device, asked] : asked_) shares += asked.share;
  const bool at_once = processors == 0 || shares <= kAtOnce * static_cast<double>(processors);
  std::vector<double> ratios;
  for (const int device : devices) {
    const auto found = asked_.find(device);
    if (found == asked_.end()) continue;
    const Asked& asked = found->second;
    if (asked.first_seconds > 0 && asked.second_seconds > 0)
      ratios.push_back(asked.second_seconds / asked.first_seconds);
  }
  if (ratios.empty()) return 1;
  std::sort(ratios.begin(), ratios.end());
  const double median = (ratios[(ratios.size() - 1) / 2] + ratios[ratios.size() / 2]) / 2;
  const bool agree = at_once && ratios.size() > 1 && ratios.back() <= kAgree * ratios.front();
  return agree ? median : (1 + median) / 2;
}

}  // namespace runnel
