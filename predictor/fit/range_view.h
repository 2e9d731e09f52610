#pragma once

// Covariance of two ranges' log(new device's time / known device's time).
//
// Devices differ above all in the cost of each kind of work: threads, instruction sets and backends
// change convolutions or element-wise work, not single layers. So ranges with the same kinds of
// work deviate together. Smaller terms are the first layer's cold start, neighbouring ranges, the
// size of a range, the overhead of a call and the cost of a cache miss. Pure functions, any thread.

#include <vector>

#include "absl/types/span.h"
#include "predictor/fit/features.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

// log(cost on the new device / cost on the known device), by kind of work.
using KindCosts = WorkVector;

// The kinds' shares of a range's time, if the known device had the given KindCosts.
struct KindShares {
  WorkVector by_kind = {};  // sum 1
  double log_change = 0;    // log(time with the costs / time with all costs 0)
};

// [layer]: shares of the layer's time by kind of work, from its work and kTypicalSeconds. The same
// for every device.
std::vector<WorkVector> LayerKinds(const ModelWork& work);

// layer_seconds: on the known device, each above 0.
KindShares SharesAt(absl::Span<const WorkVector> layer_kinds,
                    absl::Span<const double> layer_seconds, const LayerRange& range,
                    const KindCosts& costs);

// A range's properties on one known device.
struct RangeView {
  LayerRange range;
  double log_seconds = 0;
  KindShares kinds;
  double first_share = 0;   // (first layer's time) / (sum of the layers' times)
  double log_size = 0;      // log(seconds) - log_middle
  double call_share = 0;    // min(1 / exp(log_size), 20): weight of a constant cost per range
  double beyond_share = 0;  // estimated share of the time that cache misses take
};

// Makes a view with all KindCosts 0. seconds: time of the range on the known device. log_middle:
// mean of log(seconds) over the device's measured ranges. bytes_beyond:
// ModelWork::BytesBeyondCache.
RangeView MakeRangeView(absl::Span<const WorkVector> layer_kinds,
                        absl::Span<const double> layer_seconds, const LayerRange& range,
                        double seconds, double log_middle, double bytes_beyond);

// Variance of one kind's KindCosts at a deviation of size 1.
inline constexpr double kKindVariance = 4.5;

// For a deviation of size 1; multiply by its square for another size. The common factor of all
// ranges is not part of it. Both views must be of one known device, with the same KindCosts.
//   Covariance(a, b) = kKindVariance * <a.kinds.by_kind, b.kinds.by_kind>
//                      + CovarianceWithoutKinds(a, b)
double Covariance(const RangeView& a, const RangeView& b);
double CovarianceWithoutKinds(const RangeView& a, const RangeView& b);

// Rough seconds of one unit of each kind of work on one processor core: they divide a layer's time
// among the kinds before anything is measured. Boundary elements count 0.
inline constexpr WorkVector kTypicalSeconds = {5e-12,  13e-12, 5e-12,  12e-12, 0.05e-9,
                                               0.4e-9, 0.5e-9, 1.2e-9, 3.5e-6, 0};

}  // namespace runnel
