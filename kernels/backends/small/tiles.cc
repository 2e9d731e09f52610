#include "kernels/backends/small/tiles.h"

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"

namespace runnel::small {
namespace {

int64_t Aligned(int64_t bytes) { return (bytes + 15) / 16 * 16; }
int64_t Parts(int32_t whole, int32_t part) { return (whole + part - 1) / part; }

// The largest part of the source that so many positions read.
int32_t SourceOf(const ProductShape& shape, int32_t positions, int32_t kernel, int32_t stride,
                 int32_t size) {
  const int32_t read = shape.step == Step::kInputGradient ? (positions + kernel - 2) / stride + 1
                                                          : (positions - 1) * stride + kernel;
  return std::min(read, size);
}

// The tile as a convolution.
Conv ConvOf(const ProductShape& shape, const TileSize& tile) {
  Conv conv = shape.conv;
  const bool is_input = shape.step == Step::kInputGradient;
  const bool is_weight = shape.step == Step::kWeightGradient;
  if (tile.chunk > 0 && !is_weight) conv.kh = conv.kw = 1;
  const Plane& source = shape.source();
  Plane read = {source.c, SourceOf(shape, tile.rows, conv.kh, conv.stride_h, source.h),
                SourceOf(shape, tile.columns, conv.kw, conv.stride_w, source.w)};
  if (tile.chunk > 0) read.c = tile.chunk;
  const Plane walked = {tile.outs, tile.rows, tile.columns};
  conv.in = is_input ? walked : read;
  conv.out = is_input ? read : walked;
  return conv;
}

std::vector<int32_t> Halvings(int32_t whole) {
  std::vector<int32_t> parts;
  for (int32_t part = whole; part >= 1; part = part == 1 ? 0 : (part + 1) / 2)
    parts.push_back(part);
  return parts;
}

}  // namespace

std::string ToString(const TileSize& tile) {
  std::string text = absl::StrCat(tile.rows, "x", tile.columns, "x", tile.outs);
  if (tile.chunk > 0) absl::StrAppend(&text, " by ", tile.chunk);
  return text;
}

TileBytes BytesOf(const ProductShape& shape, const Way& way, const TileSize& tile) {
  const Conv conv = ConvOf(shape, tile);
  const LayerRow& row = RowOf(way.layout, shape.step, way.transposed, shape.conv.is_pointwise());
  const int64_t element = shape.is_half ? 2 : 4;
  const int64_t weights = int64_t{conv.taps()} * conv.in.c * conv.out.c;
  const TransformSize transforms = TransformsOf(conv, row);
  TileBytes bytes;
  bytes.transforms = Aligned((int64_t{transforms.a} + transforms.b) * element);
  const int64_t in = conv.in.elements(), out = conv.out.elements();
  switch (shape.step) {
    case Step::kForward:
      bytes.image = Aligned(in * element);
      bytes.other = Aligned(weights * element);
      bytes.sums = Aligned(out * 4);
      break;
    case Step::kInputGradient:
      bytes.image = Aligned(out * element);
      bytes.other = Aligned(weights * element);
      bytes.sums = Aligned(in * 4);
      break;
    case Step::kWeightGradient:
      bytes.image = Aligned(in * element);
      bytes.other = Aligned(out * element);
      bytes.sums = Aligned(weights * 4);
      break;
  }
  return bytes;
}

int64_t TrafficOf(const ProductShape& shape, const Way& way, const TileSize& tile) {
  const TileBytes bytes = BytesOf(shape, way, tile);
  const Plane& walked = shape.positions();
  const int64_t places = Parts(walked.h, tile.rows) * Parts(walked.w, tile.columns) * shape.batch;
  const int64_t outs = Parts(walked.c, tile.outs);
  const Plane& source = shape.source();
  if (shape.step == Step::kWeightGradient) {
    const int64_t parts = outs * (tile.chunk > 0 ? Parts(source.c, tile.chunk) : 1);
    return parts * (bytes.sums + places * (bytes.image + bytes.other));
  }
  if (tile.chunk == 0) return outs * (bytes.other + places * (bytes.image + bytes.sums));
  const int64_t chunks = shape.conv.taps() * Parts(source.c, tile.chunk);
  return outs * places * (bytes.sums + chunks * (bytes.image + bytes.other));
}

TileSize TileWithin(const ProductShape& shape, const Way& way, int64_t l1_bytes) {
  const Plane& walked = shape.positions();
  std::vector<int32_t> chunks = {0};
  for (const int32_t chunk : Halvings(shape.source().c)) chunks.push_back(chunk);
  TileSize best = {1, 1, 1, 1};
  for (const int32_t chunk : chunks) {
    int64_t least = std::numeric_limits<int64_t>::max();
    const auto consider = [&](const TileSize& tile) {
      if (BytesOf(shape, way, tile).total() > l1_bytes) return;
      const int64_t traffic = TrafficOf(shape, way, tile);
      if (traffic >= least) return;
      least = traffic;
      best = tile;
    };
    for (const int32_t outs : Halvings(walked.c)) {
      for (const int32_t rows : Halvings(walked.h)) consider({rows, walked.w, outs, chunk});
      for (const int32_t columns : Halvings(walked.w)) consider({1, columns, outs, chunk});
    }
    if (least != std::numeric_limits<int64_t>::max()) break;
  }
  return best;
}

}  // namespace runnel::small
