#include "predictor/fit/baselines.h"

#include <algorithm>
#include <cstddef>

namespace runnel {

FlopsLine FitFlopsLine(absl::Span<const double> macs, absl::Span<const double> seconds) {
  // Weighted least squares, weights 1 / seconds^2: minimises the sum of ((a + b m - t) / t)^2.
  double w = 0, wm = 0, wmm = 0, wt = 0, wmt = 0;
  for (size_t i = 0; i < macs.size(); ++i) {
    const double weight = 1 / (seconds[i] * seconds[i]);
    w += weight;
    wm += weight * macs[i];
    wmm += weight * macs[i] * macs[i];
    wt += weight * seconds[i];
    wmt += weight * macs[i] * seconds[i];
  }
  const double determinant = w * wmm - wm * wm;
  if (determinant > 1e-9 * w * wmm) {
    const FlopsLine line{(wt * wmm - wm * wmt) / determinant, (w * wmt - wm * wt) / determinant};
    if (line.slope > 0) return line;
  }
  return {0, wmm > 0 ? wmt / wmm : 0};
}

double SumOfLayers(absl::Span<const double> layer_seconds, const LayerRange& range) {
  double sum = 0;
  for (int l = range.first_layer; l <= range.last_layer; ++l)
    sum += layer_seconds[static_cast<size_t>(l)];
  return sum;
}

double CapacityRatio(absl::Span<const double> device_seconds,
                     absl::Span<const double> central_seconds) {
  double device = 0, central = 0;
  for (size_t i = 0; i < device_seconds.size(); ++i) {
    device += device_seconds[i];
    central += central_seconds[i];
  }
  return central > 0 ? device / central : 1;
}

}  // namespace runnel
