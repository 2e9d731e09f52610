// Products whose sums are rounded after each addition (kernels/ir/arithmetic/float_grid.h). All
// operands row-major. Each is C = A B with columns that threads divide among them; columns are
// independent sums, which the loops of an instruction set have in vectors.

#include <algorithm>
#include <vector>

#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/backends/cpu/grids/grid_loops.h"
#include "kernels/ir/arithmetic/float_grid.h"

namespace runnel::cpu {
namespace {

constexpr int64_t kColumns = 256;  // of one block
static_assert(kColumns % kChunkLanes == 0);

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
    std::vector<float> factors(static_cast<size_t>(chunk));
    ChunkColumns columns = {.factors = factors.data(),
                            .values = b.data(),
                            .step = kColumns,
                            .bounds = FloatGrid(call.instruction->grid).bounds()};
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kColumns, count = std::min(kColumns, p.columns - first);
      columns.columns = (count + kChunkLanes - 1) / kChunkLanes * kChunkLanes;
      std::fill(totals.begin(), totals.end(), 0.0f);
      for (int64_t at = 0; at < p.terms; at += chunk) {
        columns.terms = std::min(chunk, p.terms - at);
        for (int64_t k = 0; k < columns.terms; ++k) fill(at + k, first, count, &b[k * kColumns]);
        for (int64_t row = 0; row < p.rows; ++row) {
          for (int64_t k = 0; k < columns.terms; ++k) factors[k] = a(row, at + k);
          call.machine.grids->add_chunk(columns, &totals[row * kColumns]);
        }
      }
      for (int64_t row = 0; row < p.rows; ++row) {
        for (int64_t i = 0; i < count; ++i) store(row, first + i, totals[row * kColumns + i]);
      }
    }
  });
}

// Walks over (plane, row, column), a part of a row at a time.
struct PlanePosition {
  int64_t plane, h, w;

  PlanePosition(int64_t index, int64_t height, int64_t width)
      : plane(index / (height * width)), h(index / width % height), w(index % width) {}

  // part(position, how many from it on, which of `count` it is).
  template <typename Part>
  void ForParts(int64_t height, int64_t width, int64_t count, const Part& part) {
    for (int64_t i = 0; i < count;) {
      const int64_t size = std::min(count - i, width - w);
      part(*this, size, i);
      i += size;
      w = 0;
      if (++h < height) continue;
      h = 0;
      ++plane;
    }
  }
};

// values[i] = row[first + i * step], 0 outside of the row.
void CopyRow(const float* row, int64_t width, int64_t first, int64_t step, int64_t count,
             float* values) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = first + i * step;
    values[i] = at >= 0 && at < width ? row[at] : 0.0f;
  }
}

// values[i] = row[(first + i) / step] where that is one of its elements, else 0.
void SpreadRow(const float* row, int64_t width, int64_t first, int64_t step, int64_t count,
               float* values) {
  std::fill(values, values + count, 0.0f);
  const int64_t end = std::min(width, (first + count - 1 + step) / step);
  for (int64_t at = first > 0 ? (first + step - 1) / step : 0; at < end; ++at)
    values[at * step - first] = row[at];
}

// What the taps of output positions read, 0 in the padding. Of a product's operand one of (input
// channel, tap) and (sample, output position) are the terms, the other the columns.
struct Patches {
  const ChunkGeometry& g;
  const float* x;  // of the group's first channel
  bool taps_are_terms;

  void operator()(int64_t term, int64_t first, int64_t count, float* values) const {
    const int64_t sizes[2][2] = {{g.window.kh, g.window.kw}, {g.y.h, g.y.w}};
    const auto& [term_h, term_w] = sizes[taps_are_terms ? 0 : 1];
    const auto& [height, width] = sizes[taps_are_terms ? 1 : 0];
    const PlanePosition fixed(term, term_h, term_w);
    PlanePosition(first, height, width)
        .ForParts(height, width, count, [&](const PlanePosition& at, int64_t size, int64_t done) {
          taps_are_terms ? Fill(at, fixed, g.window.sw, size, values + done)
                         : Fill(fixed, at, g.window.dw, size, values + done);
        });
  }

  // step: between the inputs that values beside one another read.
  void Fill(const PlanePosition& out, const PlanePosition& tap, int64_t step, int64_t count,
            float* values) const {
    const int64_t h = out.h * g.window.sh + tap.h * g.window.dh - g.window.ph;
    if (h < 0 || h >= g.x.h) return static_cast<void>(std::fill(values, values + count, 0.0f));
    const int64_t w = out.w * g.window.sw + tap.w * g.window.dw - g.window.pw;
    const float* row = x + ((out.plane * g.x.c + tap.plane) * g.x.h + h) * g.x.w;
    CopyRow(row, g.x.w, w, step, count, values);
  }
};

// The gradients of the outputs that read input positions, 0 where none does. Terms are (output
// channel, tap), columns are (sample, input position).
struct ReaderRows {
  const ChunkGeometry& g;
  const float* dy;  // of the group's first channel

  void operator()(int64_t term, int64_t first, int64_t count, float* values) const {
    const PlanePosition tap(term, g.window.kh, g.window.kw);
    PlanePosition(first, g.x.h, g.x.w)
        .ForParts(g.x.h, g.x.w, count, [&](const PlanePosition& in, int64_t size, int64_t at) {
          const int64_t h = in.h + g.window.ph - tap.h * g.window.dh, oh = h / g.window.sh;
          const bool exists = h >= 0 && oh * g.window.sh == h && oh < g.y.h;
          if (!exists) return static_cast<void>(std::fill(values + at, values + at + size, 0.0f));
          const float* row = dy + ((in.plane * g.y.c + tap.plane) * g.y.h + oh) * g.y.w;
          SpreadRow(row, g.y.w, in.w + g.window.pw - tap.w * g.window.dw, g.window.sw, size,
                    values + at);
        });
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

absl::Status ChunkedForward(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ChunkGeometry g = ChunkGeometryOf(call, call.in_shape(0), call.out_shape(0));
  const FloatGrid format(call.instruction->grid);
  const float* bias = call.inputs.size() > 2 ? call.in(2) : nullptr;
  const int64_t terms = g.group_in() * g.taps(), positions = g.y.positions();
  for (int64_t group = 0; group < g.groups; ++group) {
    const int64_t first = group * g.group_out();
    const float* weight = call.in(1) + first * terms;
    const Patches patches{g, call.in(0) + group * g.group_in() * g.x.positions(),
                          /*taps_are_terms=*/true};
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

absl::Status ChunkedInputGradient(absl::Span<const Call> calls) {
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
absl::Status ChunkedWeightGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ChunkGeometry g = ChunkGeometryOf(call, call.in_shape(1), call.in_shape(0));
  const bool adds = call.context->accumulate && !call.instruction->overwrites;
  const int64_t positions = g.y.positions(), filter = g.group_in() * g.taps();
  for (int64_t group = 0; group < g.groups; ++group) {
    const Patches patches{g, call.in(1) + group * g.group_in() * g.x.positions(),
                          /*taps_are_terms=*/false};
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

}  // namespace runnel::cpu
