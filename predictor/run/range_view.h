#pragma once

// How alike two ranges of layers are: the covariance of what a device's times of them are off by,
// against a device that is known. What it is off by is above all what each kind of work costs there
// (threads, instruction sets and backends change kinds of work, not layers): layers that do the
// same work are off by the same factor. On top come what each call costs, a slope over the size of
// a range, the first layer's cold start, what a byte from beyond the cache costs and what near
// ranges share. Pure functions, any thread.

#include <vector>

#include "absl/types/span.h"
#include "predictor/run/features.h"
#include "proto/base/layer_range.h"

namespace runnel {

// By kind of work: the logarithm of what it costs on one device over what it costs on another.
using KindCosts = WorkVector;

// What a range's time on a known device is made of, at certain costs.
struct KindShares {
  WorkVector by_kind = {};  // add up to 1
  double log_change = 0;    // of its time, from costs of 0
};

// Shares of each layer's time, whatever the device: from the work and kTypicalSeconds.
std::vector<WorkVector> LayerKinds(const ModelWork& work);

// layer_seconds: of the known device, each above 0.
KindShares SharesAt(absl::Span<const WorkVector> layer_kinds,
                    absl::Span<const double> layer_seconds, const LayerRange& range,
                    const KindCosts& costs);

// A range as one known device sees it.
struct RangeView {
  LayerRange range;
  double log_seconds = 0;  // there
  KindShares kinds;
  double first_share = 0;   // its first layer's share of its time
  double log_size = 0;      // its time over that of a middling range, as a logarithm
  double call_share = 0;    // falls with its time: what a constant per range counts for
  double beyond_share = 0;  // roughly: of its time, what bytes from beyond the cache take
};

// At costs of 0. seconds: of the range there. log_middle: mean logarithm of the seconds of the
// device's ranges. bytes_beyond: ModelWork::BytesBeyondCache.
RangeView ViewOf(absl::Span<const WorkVector> layer_kinds, absl::Span<const double> layer_seconds,
                 const LayerRange& range, double seconds, double log_middle, double bytes_beyond);

// Of each kind's cost, beside a deviation of 1.
inline constexpr double kKindVariance = 4.5;

// Of the logarithms of two ranges' times, for a device that is off by a factor of e in the middle
// (times its deviation squared), but for one common factor: all of it, and without what the kinds'
// costs make of it. Both views are of one known device, at the same costs.
double Covariance(const RangeView& a, const RangeView& b);
double CovarianceBesideKinds(const RangeView& a, const RangeView& b);

// Seconds of one unit of each kind of work on one processor core, roughly: which kind a layer's
// time goes to, before anything is measured. A boundary's elements are not among them.
inline constexpr WorkVector kTypicalSeconds = {5e-12,  13e-12, 5e-12,  12e-12, 0.05e-9,
                                               0.4e-9, 0.5e-9, 1.2e-9, 3.5e-6, 0};

}  // namespace runnel
