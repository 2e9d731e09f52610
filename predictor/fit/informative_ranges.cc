#include "predictor/fit/informative_ranges.h"

#include <algorithm>
#include <cmath>

#include "predictor/fit/layer_prior.h"
#include "predictor/fit/range_view.h"

namespace runnel {
namespace {

// Size of the deviation: a device of another kind than the known ones (device_mixture.h).
constexpr double kDeviation = 0.3;
constexpr double kCommonVariance = 1;
constexpr double kLeastSeconds = 1e-7;
// The choice ignores the cost of cache misses: including it gave 77 instead of 79 % within 5 %
// before any sample.
constexpr double kNoBytesBeyond = 0;

std::vector<RangeView> TypicalViews(const ModelWork& work, absl::Span<const LayerRange> ranges) {
  std::vector<double> layers;
  for (int l = 0; l < work.layers(); ++l) {
    const WorkVector counts = work.Of({l, l});
    double seconds = kLeastSeconds;
    for (size_t k = 0; k < counts.size(); ++k) seconds += counts[k] * kTypicalSeconds[k];
    layers.push_back(seconds);
  }
  std::vector<double> seconds;
  double log_middle = 0;
  for (const LayerRange& range : ranges) {
    seconds.push_back(0);
    for (int l = range.first_layer; l <= range.last_layer; ++l)
      seconds.back() += layers[static_cast<size_t>(l)];
    log_middle += std::log(seconds.back()) / static_cast<double>(ranges.size());
  }
  const std::vector<WorkVector> kinds = LayerKinds(work);
  std::vector<RangeView> views;
  for (size_t i = 0; i < ranges.size(); ++i)
    views.push_back(
        MakeRangeView(kinds, layers, ranges[i], seconds[i], log_middle, kNoBytesBeyond));
  return views;
}

// Covariance of all ranges' log(time), given the measurements so far.
class PosteriorCovariance {
 public:
  explicit PosteriorCovariance(absl::Span<const RangeView> views) : size_(views.size()) {
    for (const RangeView& a : views) {
      for (const RangeView& b : views)
        covariance_.push_back(kDeviation * kDeviation * Covariance(a, b) + kCommonVariance);
    }
  }

  void Measure(size_t i) {
    const std::vector<double> row(Row(i), Row(i) + size_);
    for (size_t a = 0; a < size_; ++a) {
      for (size_t b = 0; b < size_; ++b)
        covariance_[a * size_ + b] -= row[a] * row[b] / (row[i] + kNoiseVariance);
    }
  }
  // Reduction of the sum of all variances by measuring range i.
  double Gain(size_t i) const {
    double sum = 0;
    for (size_t a = 0; a < size_; ++a) sum += Row(i)[a] * Row(i)[a];
    return sum / (Row(i)[i] + kNoiseVariance);
  }

 private:
  static constexpr double kNoiseVariance = kMeasurementNoise * kMeasurementNoise;
  const double* Row(size_t i) const { return covariance_.data() + i * size_; }

  size_t size_;
  std::vector<double> covariance_;
};

}  // namespace

std::vector<size_t> MostInformativeRanges(const ModelWork& work,
                                          absl::Span<const LayerRange> ranges,
                                          absl::Span<const size_t> measured,
                                          absl::Span<const size_t> barred, size_t count) {
  PosteriorCovariance posterior(TypicalViews(work, ranges));
  std::vector<bool> allowed(ranges.size(), true);
  for (const size_t i : barred) allowed[i] = false;
  for (const size_t i : measured) {
    allowed[i] = false;
    posterior.Measure(i);
  }
  std::vector<size_t> chosen;
  while (chosen.size() < count) {
    size_t best = ranges.size();
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (allowed[i] && (best == ranges.size() || posterior.Gain(i) > posterior.Gain(best)))
        best = i;
    }
    if (best == ranges.size()) break;
    allowed[best] = false;
    posterior.Measure(best);
    chosen.push_back(best);
  }
  return chosen;
}

}  // namespace runnel
