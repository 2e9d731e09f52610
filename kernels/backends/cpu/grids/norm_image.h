#pragma once

// The parts of a norm's tensor, which lies channels-last, that threads work on.

#include <algorithm>
#include <cstdint>

#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/grids/float_loops.h"

namespace runnel::cpu {

// (rows, channels) of a tensor that lies channels-last.
struct NormImage {
  int64_t rows, channels;

  explicit NormImage(const Shape& shape) : rows(shape.elements() / shape[1]), channels(shape[1]) {}
};

// body(first row, rows) of parts of all rows.
template <typename Body>
void OverRows(const Call& call, const NormImage& image, const Body& body) {
  ParallelFor(call.machine, image.rows,
              [&](int, int64_t begin, int64_t end) { body(begin, end - begin); });
}

// body(first channel, channels) of all channels, kNormChannels at a time.
template <typename Body>
void OverChannels(const Call& call, const NormImage& image, const Body& body) {
  const int64_t blocks = (image.channels + kNormChannels - 1) / kNormChannels;
  ParallelFor(call.machine, blocks, [&](int, int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kNormChannels;
      body(first, std::min(kNormChannels, image.channels - first));
    }
  });
}

}  // namespace runnel::cpu
