#pragma once

// What norms go over. Any thread.

#include <cstdint>

#include "proto/base/tensor/shape.h"

namespace runnel::ref {

// (N,C,...) seen as N x C runs of `inner` elements.
struct Channels {
  int64_t batch, channels, inner;

  explicit Channels(const Shape& shape)
      : batch(shape[0]), channels(shape[1]), inner(shape.elements() / (shape[0] * shape[1])) {}

  double count() const { return static_cast<double>(batch * inner); }

  // Calls body(element) for each element of a channel, sample by sample.
  template <typename Body>
  void ForEach(int64_t channel, const Body& body) const {
    for (int64_t n = 0; n < batch; ++n) {
      const int64_t begin = (n * channels + channel) * inner;
      for (int64_t i = begin; i < begin + inner; ++i) body(i);
    }
  }
};

}  // namespace runnel::ref
