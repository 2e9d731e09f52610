#pragma once

// What codecs add to the noise of gradients, by measurement: the gradients of K micro-batches, each
// computed exactly and with the codecs in use, with the same weights (a dry run). Pure functions.

#include <cstdint>
#include <optional>

#include "proto/base/ids.h"

namespace runnel {

// Which boundary tensors of a dry run pass their codecs: all, or those of one link, one way or both.
struct CodedWays {
  std::optional<int> link = {};  // position in Plan::links; none: all of them, both ways
  bool forward = false;          // of the link
  bool backward = false;

  bool Has(int at, Direction direction) const {
    if (!link.has_value()) return true;
    return *link == at && (direction == Direction::kForward ? forward : backward);
  }
  friend bool operator==(const CodedWays&, const CodedWays&) = default;
};

// Over the weight-gradients of a stage, or of several: sums of squares add up.
struct GradientSums {
  int64_t micro_batches = 0;     // K
  double mean_square = 0;        // |m|^2, m the mean of the exact gradients g
  double deviation = 0;          // sum of |g - m|^2
  double error_mean_square = 0;  // |e|^2, e the mean of the errors d = coded - exact
  double error_deviation = 0;    // sum of |d - e|^2

  // Of the same micro-batches at another stage.
  GradientSums& operator+=(const GradientSums& other);
  friend bool operator==(const GradientSums&, const GradientSums&) = default;
};

struct GradientNoise {
  // The codecs' mean squared error of a step's gradient, as a share of the variance that mini-batches
  // give it.
  double added = 0;
  // Samples of a mini-batch whose gradient has as much noise as length (McCandlish et al., 2018: the
  // simple noise scale); 0: the gradient is too short to tell.
  double scale_samples = 0;
};

// micro_batches_a_step: of a mini-batch. Errors that are alike in all micro-batches add up over a
// mini-batch, others average out. samples: of a micro-batch. `sums` of at least two micro-batches.
// Not finite: a gradient was not, or all of them were the same.
GradientNoise NoiseOf(const GradientSums& sums, int64_t micro_batches_a_step, int64_t samples);

}  // namespace runnel
