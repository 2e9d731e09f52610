#pragma once

// What of a product lies in the nearest memory (L1) at a time, and copies between it and the rest.
// Pure functions; any thread.

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/backends/small/primitives/layers.h"

namespace runnel::small {

// What adds up products of halves.
enum class HalfSums : uint8_t {
  kFloat,  // in the order that all backends have (kernels/ir/arithmetic/half_products.h)
  kOwn,    // F16 itself, in the paper's order: terms ascend
};

// A product of one group of channels. Planes have the group's channels; a linear layer's positions
// are its rows.
struct ProductShape {
  Step step = Step::kForward;
  Conv conv;  // whole
  int32_t batch = 1;
  int32_t groups = 1;
  bool is_linear = false;
  bool is_half = false;
  bool has_own_sums = false;  // HalfSums::kOwn

  bool in_pairs() const { return is_half && !has_own_sums; }
  // The plane that is written, or of the weight-gradient walked over, and the one that windows read.
  const Plane& positions() const { return step == Step::kInputGradient ? conv.in : conv.out; }
  const Plane& source() const { return step == Step::kInputGradient ? conv.out : conv.in; }
  int64_t macs() const {
    return int64_t{conv.out.positions()} * conv.out.c * conv.taps() * conv.in.c * batch * groups;
  }
};

// The order of operands and kernel that compute a product; no result depends on it.
struct Way {
  Layout layout = Layout::kHwc;
  bool transposed = false;
  friend bool operator==(const Way&, const Way&) = default;
};

// Of a forward or input-gradient: rows x columns positions of `outs` channels at a time, all terms,
// or with `chunk` so many channels of one tap. Of a weight-gradient: `outs` filters of `chunk` (0:
// all) channels at a time, from rows x columns positions.
struct TileSize {
  int32_t rows = 0, columns = 0, outs = 0, chunk = 0;
  friend bool operator==(const TileSize&, const TileSize&) = default;
};
std::string ToString(const TileSize& tile);  // "8x32x16", "1x1x4 by 64"

// Bytes of the parts of a tile.
struct TileBytes {
  int64_t image = 0, other = 0, transforms = 0, sums = 0;
  int64_t total() const { return image + other + transforms + sums; }
};
TileBytes BytesOf(const ProductShape& shape, const Way& way, const TileSize& tile);
// Bytes that copies move for the whole product.
int64_t TrafficOf(const ProductShape& shape, const Way& way, const TileSize& tile);
// The tile of the least traffic that fits; one position of one channel if none does (what L1 of a
// kilobyte has no room for).
TileSize TileWithin(const ProductShape& shape, const Way& way, int64_t l1_bytes);

// Positions [first, last) of an axis, and what they read.
struct AxisTile {
  int32_t first = 0, count = 0;  // of the source
  int32_t pad = 0;
};
// Of positions [begin, end): outputs of a forward.
inline AxisTile ForwardAxis(int32_t begin, int32_t end, int32_t stride, int32_t kernel, int32_t pad,
                            int32_t size) {
  const int32_t first = std::clamp(begin * stride - pad, 0, size);
  const int32_t last = std::clamp((end - 1) * stride + kernel - pad, first, size);
  return {first, last - first, pad - begin * stride + first};
}
// Of positions [begin, end) of X: an input-gradient reads dY.
inline AxisTile BackwardAxis(int32_t begin, int32_t end, int32_t stride, int32_t kernel,
                             int32_t pad, int32_t size) {
  const int32_t low = begin + pad - (kernel - 1), high = end - 1 + pad;
  const int32_t first = std::clamp(low > 0 ? (low + stride - 1) / stride : 0, 0, size);
  const int32_t last = std::clamp(high >= 0 ? high / stride + 1 : 0, first, size);
  return {first, last - first, pad + begin - first * stride};
}

}  // namespace runnel::small
