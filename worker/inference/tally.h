#pragma once

// What the logits of an evaluation come to.

#include <cstdint>

#include "absl/types/span.h"

namespace runnel {

// Sums over samples. A sample's loss is rounded to a multiple of 2^-24, so that sums below 2^29 are
// exact: the same bits in any order, however samples are batched.
struct Tally {
  double loss_sum = 0;  // cross-entropy
  int64_t correct = 0;

  // One sample; the first of equal largest logits counts. label: in [0, logits.size()).
  void Add(absl::Span<const float> logits, int32_t label);
};

}  // namespace runnel
