// Products whose sums are rounded after each addition (kernels/ir/arithmetic/float_grid.h). All
// operands row-major. Each is C = A B with columns that threads divide among them; columns are
// independent sums, so the compiler makes vectors of them.

#include <algorithm>
#include <vector>

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/ir/arithmetic/float_grid.h"

namespace runnel::fp32 {
namespace {

constexpr int64_t kColumns = 256;  // of one block
constexpr int64_t kLanes = 8;      // columns beside one another

// The planes of one group of a convolution; a linear layer has one group and one position.
struct ChunkGeometry {
  Image x, y;
  Window window;
  int64_t groups = 1;

  int64_t group_in() const { return x.c / groups; }
  int64_t group_out() const { return y.c / groups; }
  int64_t taps() const { return window.kh * window.kw; }
};

ChunkGeometry ChunkGeometryOf(const Call& call, const Shape& x, const Shape& y) {
  if (x.rank() == 2) return {ImageOf(x), ImageOf(y), {}, 1};
  const OpSpec& op = call.instruction->attributes;
  return {ImageOf(x), ImageOf(y), WindowOf(op, x), op.groups};
}

// Rows of A B and how many terms each sum has.
struct Product {
  int64_t rows = 0, columns = 0, terms = 0;
};

// a(row, term); fill(term, first, count, values): of B; store(row, column, sum).
template <typename A, typename Fill, typename Store>
void RunChunkedProduct(const Call& call, const Product& p, const A& a, const Fill& fill,
                       const Store& store) {
  const int64_t chunk = std::min<int64_t>(call.instruction->grid.chunk, p.terms);
  const int64_t blocks = (p.columns + kColumns - 1) / kColumns;
  ParallelFor(call.machine, blocks, [&](int, int64_t begin, int64_t end) {
    std::vector<float> b(static_cast<size_t>(chunk * kColumns));
    std::vector<float> totals(static_cast<size_t>(p.rows * kColumns));
    float partial[kColumns];
    // A local one: what the loops write cannot be its members.
    const FloatGrid format(call.instruction->grid);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kColumns, count = std::min(kColumns, p.columns - first);
      const int64_t width = (count + kLanes - 1) / kLanes * kLanes;
      std::fill(totals.begin(), totals.end(), 0.0f);
      for (int64_t at = 0; at < p.terms; at += chunk) {
        const int64_t terms = std::min(chunk, p.terms - at);
        for (int64_t k = 0; k < terms; ++k) fill(at + k, first, count, &b[k * kColumns]);
        for (int64_t row = 0; row < p.rows; ++row) {
          std::fill(partial, partial + width, 0.0f);
          for (int64_t k = 0; k < terms; ++k) {
            const float factor = a(row, at + k);
            const float* values = &b[k * kColumns];
            for (int64_t i = 0; i < width; ++i)
              partial[i] = format.Nearest(partial[i] + factor * values[i]);
          }
          float* total = &totals[row * kColumns];
          for (int64_t i = 0; i < width; ++i) total[i] = format.Nearest(total[i] + partial[i]);
        }
      }
      for (int64_t row = 0; row < p.rows; ++row) {
        for (int64_t i = 0; i < count; ++i) store(row, first + i, totals[row * kColumns + i]);
      }
    }
  });
}

// Walks over (plane, row, column) without a division a step.
struct PlanePosition {
  int64_t plane, h, w;

  PlanePosition(int64_t index, int64_t height, int64_t width)
      : plane(index / (height * width)), h(index / width % height), w(index % width) {}
  void Next(int64_t height, int64_t width) {
    if (++w < width) return;
    w = 0;
    if (++h < height) return;
    h = 0;
    ++plane;
  }
};

// What the taps of output positions read, 0 in the padding.
struct Patches {
  const ChunkGeometry& g;
  const float* x;  // of the group's first channel

  float At(const PlanePosition& out, const PlanePosition& tap) const {
    const int64_t h = out.h * g.window.sh + tap.h * g.window.dh - g.window.ph;
    const int64_t w = out.w * g.window.sw + tap.w * g.window.dw - g.window.pw;
    const bool inside = h >= 0 && h < g.x.h && w >= 0 && w < g.x.w;
    return inside ? x[((out.plane * g.x.c + tap.plane) * g.x.h + h) * g.x.w + w] : 0.0f;
  }
};

// Terms are (input channel, tap), columns are (sample, output position).
struct ForwardPatches {
  Patches patches;

  void operator()(int64_t term, int64_t first, int64_t count, float* values) const {
    const ChunkGeometry& g = patches.g;
    const PlanePosition tap(term, g.window.kh, g.window.kw);
    PlanePosition out(first, g.y.h, g.y.w);
    for (int64_t i = 0; i < count; ++i, out.Next(g.y.h, g.y.w)) values[i] = patches.At(out, tap);
  }
};

// The reverse.
struct WeightPatches {
  Patches patches;

  void operator()(int64_t term, int64_t first, int64_t count, float* values) const {
    const ChunkGeometry& g = patches.g;
    const PlanePosition out(term, g.y.h, g.y.w);
    PlanePosition tap(first, g.window.kh, g.window.kw);
    for (int64_t i = 0; i < count; ++i, tap.Next(g.window.kh, g.window.kw))
      values[i] = patches.At(out, tap);
  }
};

// The gradients of the outputs that read input positions, 0 where none does. Terms are (output
// channel, tap), columns are (sample, input position).
struct ReaderRows {
  const ChunkGeometry& g;
  const float* dy;  // of the group's first channel

  void operator()(int64_t term, int64_t first, int64_t count, float* values) const {
    const PlanePosition tap(term, g.window.kh, g.window.kw);
    PlanePosition in(first, g.x.h, g.x.w);
    for (int64_t i = 0; i < count; ++i, in.Next(g.x.h, g.x.w)) {
      const int64_t h = in.h + g.window.ph - tap.h * g.window.dh;
      const int64_t w = in.w + g.window.pw - tap.w * g.window.dw;
      const int64_t oh = h / g.window.sh, ow = w / g.window.sw;
      const bool exists = h >= 0 && w >= 0 && oh * g.window.sh == h && ow * g.window.sw == w &&
                          oh < g.y.h && ow < g.y.w;
      values[i] = exists ? dy[((in.plane * g.y.c + tap.plane) * g.y.h + oh) * g.y.w + ow] : 0.0f;
    }
  }
};

void ChunkedBiasGradient(const Call& call, const ChunkGeometry& g, bool adds) {
  if (call.outputs.size() < 2) return;
  for (int64_t oc = 0; oc < g.y.c; ++oc) {
    double sum = 0;
    for (int64_t n = 0; n < g.y.n; ++n) {
      const float* plane = call.in(0) + (n * g.y.c + oc) * g.y.positions();
      for (int64_t i = 0; i < g.y.positions(); ++i) sum += plane[i];
    }
    float& bias = call.out(1)[oc];
    bias = static_cast<float>(sum) + (adds ? bias : 0.0f);
  }
}

}  // namespace

absl::Status ChunkedForward(Calls calls) {
  const Call& call = calls[0];
  const ChunkGeometry g = ChunkGeometryOf(call, call.in_shape(0), call.out_shape(0));
  const FloatGrid format(call.instruction->grid);
  const float* bias = call.inputs.size() > 2 ? call.in(2) : nullptr;
  const int64_t terms = g.group_in() * g.taps(), positions = g.y.positions();
  for (int64_t group = 0; group < g.groups; ++group) {
    const int64_t first = group * g.group_out();
    const float* weight = call.in(1) + first * terms;
    const ForwardPatches patches{{g, call.in(0) + group * g.group_in() * g.x.positions()}};
    RunChunkedProduct(
        call, {g.group_out(), g.y.n * positions, terms},
        [&](int64_t row, int64_t k) { return weight[row * terms + k]; }, patches,
        [&](int64_t row, int64_t column, float sum) {
          const int64_t n = column / positions, oc = first + row;
          call.out(0)[(n * g.y.c + oc) * positions + column % positions] =
              bias == nullptr ? sum : format.Nearest(sum + bias[oc]);
        });
  }
  return absl::OkStatus();
}

absl::Status ChunkedInputGradient(Calls calls) {
  const Call& call = calls[0];
  const ChunkGeometry g = ChunkGeometryOf(call, call.out_shape(0), call.in_shape(0));
  const int64_t positions = g.x.positions(), filter = g.group_in() * g.taps();
  for (int64_t group = 0; group < g.groups; ++group) {
    const float* weight = call.in(1) + group * g.group_out() * filter;
    const ReaderRows readers{g, call.in(0) + group * g.group_out() * g.y.positions()};
    RunChunkedProduct(
        call, {g.group_in(), g.x.n * positions, g.group_out() * g.taps()},
        [&](int64_t row, int64_t k) {
          return weight[k / g.taps() * filter + row * g.taps() + k % g.taps()];
        },
        readers,
        [&](int64_t row, int64_t column, float sum) {
          const int64_t n = column / positions, ic = group * g.group_in() + row;
          call.out(0)[(n * g.x.c + ic) * positions + column % positions] = sum;
        });
  }
  return absl::OkStatus();
}

// Terms are (sample, output position), columns are (input channel, tap).
absl::Status ChunkedWeightGradient(Calls calls) {
  const Call& call = calls[0];
  const ChunkGeometry g = ChunkGeometryOf(call, call.in_shape(1), call.in_shape(0));
  const bool adds = call.context->accumulate && !call.instruction->overwrites;
  const int64_t positions = g.y.positions(), filter = g.group_in() * g.taps();
  for (int64_t group = 0; group < g.groups; ++group) {
    const WeightPatches patches{{g, call.in(1) + group * g.group_in() * g.x.positions()}};
    const float* dy = call.in(0) + group * g.group_out() * positions;
    float* dweight = call.out(0) + group * g.group_out() * filter;
    RunChunkedProduct(
        call, {g.group_out(), filter, g.y.n * positions},
        [&](int64_t row, int64_t k) {
          return dy[(k / positions * g.y.c + row) * positions + k % positions];
        },
        patches,
        [&](int64_t row, int64_t column, float sum) {
          float& place = dweight[row * filter + column];
          place = sum + (adds ? place : 0.0f);
        });
  }
  ChunkedBiasGradient(call, g, adds);
  return absl::OkStatus();
}

}  // namespace runnel::fp32
