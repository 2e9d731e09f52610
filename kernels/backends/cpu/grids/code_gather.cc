// Forward and input-gradient of codes: products of int8 (int8/gather_conv.h), whose sums become values
// as they leave the tiles.

#include <algorithm>

#include "kernels/backends/cpu/grids/axis_taps.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/backends/cpu/int8/gather_conv.h"
#include "kernels/backends/cpu/integer/product_slices.h"

namespace runnel::cpu {
namespace {

// The sums of one group become values.
class ValueSink final : public SumsSink {
 public:
  // tile: without what a tile of sums says. Arrays by column are the group's.
  ValueSink(const GridLoops& loops, const ValueTile& tile, float* result)
      : loops_(loops), tile_(tile), result_(result) {}

  void Take(const SumsOfTile& sums) override {
    ValueTile tile = tile_;
    tile.sums = sums.sums;
    tile.places = sums.places;
    tile.rows = sums.rows;
    tile.columns = sums.columns;
    tile.product_units += sums.first_column;
    tile.left_units += sums.first_column;
    tile.first_column = sums.first_column;
    loops_.tile_values(tile, result_);
  }

 private:
  const GridLoops& loops_;
  const ValueTile tile_;
  float* const result_;
};

// One product. The left operand are the codes that it gathers from, the right one are the weights.
class CodeGather {
 public:
  CodeGather(const Call& call, const ConvShape& shape, bool input_gradient)
      : call_(call),
        shape_(shape),
        kernels_(RowOfCodes(call.machine)),
        loops_(*call.machine.grids),
        problem_(GatherProblemOf(shape, input_gradient)),
        h_(TapsOfAxis(problem_.h, input_gradient)),
        w_(TapsOfAxis(problem_.w, input_gradient)),
        low_(input_gradient ? LowerCodes(call) : nullptr),
        bias_(!input_gradient && call.inputs.size() > 4 ? call.in(4) : nullptr) {}

  void Run() {
    const int threads = call_.machine.workers();
    auto* workspace = call_.Take<std::byte>(
        std::max<int64_t>(64, GatherWorkspaceBytes(kernels_, problem_, threads, false)));
    const Int8Context context = {&kernels_, call_.machine.pool, workspace};
    Allocate();
    for (int64_t g = 0; g < shape_.groups; ++g) {
      SumLeft(g);
      SumWeights(g);
      FillColumns(g);
      Multiply(context, g);
    }
  }

 private:
  int64_t positions() const { return problem_.out_h * problem_.out_w; }
  int64_t sources() const { return problem_.source_h * problem_.source_w; }
  bool is_forward() const { return !problem_.input_gradient; }
  const int8_t* WeightsOf(int64_t g) const {
    return call_.in<int8_t>(1) + g * shape_.group_out() * problem_.weight_row;
  }

  struct Columns {
    int64_t begin = 0, end = 0;
  };

  void Allocate() {
    const int64_t columns = problem_.out_c;
    left_sums_ = call_.Take<double>(problem_.batch * positions());
    of_worker_ = 2 * sources() + problem_.source_w + 1;
    windows_ = call_.Take<Columns>(problem_.out_w);
    for (int64_t x = 0; x < problem_.out_w; ++x) {
      const std::vector<AxisTaps::Tap>& taps = w_.of[x];
      windows_[x] = {};
      if (taps.empty()) continue;
      const auto [least, most] = std::minmax(taps.front().source, taps.back().source);
      windows_[x] = {least, most + 1};
    }
    partial_ = call_.Take<int64_t>(call_.machine.workers() * of_worker_);
    tap_sums_ = call_.Take<int32_t>(problem_.taps() * columns);
    product_units_ = call_.Take<double>(columns);
    left_units_ = call_.Take<double>(columns);
    parts_ = call_.Take<double>(h_.classes() * w_.classes() * columns);
    right_parts_ = call_.Take<const double*>(positions());
    for (int64_t p = 0; p < positions(); ++p)
      right_parts_[p] = parts_ + columns * (h_.class_of[p / problem_.out_w] * w_.classes() +
                                            w_.class_of[p % problem_.out_w]);
    if (low_ != nullptr)
      upper_ = call_.Take<int32_t>(problem_.batch * positions() * problem_.out_pixel);
  }

  // The codes that each output reads: of pixels, then along columns, then along rows.
  void SumLeft(int64_t g) {
    ParallelFor(call_.machine, problem_.batch, [&](int worker, int64_t begin, int64_t end) {
      int64_t* pixels = partial_ + worker * of_worker_;
      for (int64_t n = begin; n < end; ++n) {
        SumPixels(g, n, pixels);
        SumWindows(pixels, pixels + sources(), left_sums_ + n * positions());
      }
    });
  }

  void SumPixels(int64_t g, int64_t n, int64_t* pixels) const {
    const int64_t first = n * sources() * problem_.source_pixel + g * problem_.source_c;
    const int8_t* codes = call_.in<int8_t>(0) + first;
    loops_.pixel_sums(codes, sources(), problem_.source_pixel, problem_.source_c, pixels);
    if (low_ == nullptr) return;
    int64_t* low = pixels + of_worker_ - sources();
    loops_.pixel_sums(low_ + first, sources(), problem_.source_pixel, problem_.source_c, low);
    for (int64_t p = 0; p < sources(); ++p) pixels[p] = 256 * pixels[p] + low[p];
  }

  // The sources of an output lie side by side, so a sum is the difference of two sums from the left.
  void SumWindows(const int64_t* pixels, int64_t* row, double* sums) const {
    const int64_t width = problem_.source_w;
    for (int64_t y = 0; y < problem_.out_h; ++y, sums += problem_.out_w) {
      std::fill_n(row, width + 1, int64_t{0});
      for (const AxisTaps::Tap& tap : h_.of[y]) {
        for (int64_t x = 0; x < width; ++x) row[x + 1] += pixels[tap.source * width + x];
      }
      for (int64_t x = 0; x < width; ++x) row[x + 1] += row[x];
      for (int64_t x = 0; x < problem_.out_w; ++x)
        sums[x] = static_cast<double>(row[windows_[x].end] - row[windows_[x].begin]);
    }
  }

  // The weights' codes by tap and column.
  void SumWeights(int64_t g) {
    const int64_t taps = problem_.taps(), inputs = shape_.group_in();
    const int8_t* w = WeightsOf(g);
    if (!is_forward()) {
      std::fill_n(tap_sums_, taps * inputs, 0);
      for (int64_t c = 0; c < shape_.group_out(); ++c)
        loops_.add(w + c * problem_.weight_row, taps * inputs, tap_sums_);
      return;
    }
    for (int64_t c = 0; c < problem_.out_c; ++c) {
      for (int64_t t = 0; t < taps; ++t)
        tap_sums_[t * problem_.out_c + c] =
            loops_.sum(w + c * problem_.weight_row + t * inputs, inputs);
    }
  }

  void FillColumns(int64_t g) {
    const CodeGrid left = GridsAt(call_, 2).At(0);
    const CodeGrids weights = GridsAt(call_, 3);
    const int64_t columns = problem_.out_c;
    for (int64_t c = 0; c < columns; ++c) {
      const CodeGrid right = weights.At(g * columns + c);
      product_units_[c] = left.unit * right.unit;
      left_units_[c] = left.unit * right.middle;
    }
    for (int64_t y = 0; y < h_.classes(); ++y) {
      for (int64_t x = 0; x < w_.classes(); ++x)
        FillParts(g, h_.OfClass(y), w_.OfClass(x), left, weights,
                  parts_ + (y * w_.classes() + x) * columns);
    }
  }

  void FillParts(int64_t g, const std::vector<AxisTaps::Tap>& h,
                 const std::vector<AxisTaps::Tap>& w, const CodeGrid& left,
                 const CodeGrids& weights, double* parts) const {
    const int64_t columns = problem_.out_c;
    const int64_t terms = static_cast<int64_t>(h.size() * w.size()) * problem_.source_c;
    for (int64_t c = 0; c < columns; ++c) {
      int64_t sum = 0;
      for (const AxisTaps::Tap& y : h) {
        for (const AxisTaps::Tap& x : w)
          sum += tap_sums_[(y.tap * problem_.w.kernel + x.tap) * columns + c];
      }
      const double bias = bias_ == nullptr ? 0 : bias_[g * columns + c];
      parts[c] = RightPart(left, weights.At(g * columns + c), sum, terms, bias);
    }
  }

  void Multiply(const Int8Context& context, int64_t g) const {
    const int64_t from = g * problem_.source_c, to = g * problem_.out_c;
    const int8_t* codes = call_.in<int8_t>(0) + from;
    if (low_ != nullptr) {
      RunGather(context, problem_, {.source = codes, .weights = WeightsOf(g), .out = upper_ + to});
    }
    ValueSink sink(loops_,
                   {.pixel = problem_.out_pixel,
                    .positions = positions(),
                    .upper = low_ == nullptr ? nullptr : upper_ + to,
                    .left_sums = left_sums_,
                    .product_units = product_units_,
                    .left_units = left_units_,
                    .right_parts = right_parts_},
                   call_.out(0) + to);
    RunGather(
        context, problem_,
        {.source = low_ == nullptr ? codes : low_ + from, .weights = WeightsOf(g), .sink = &sink});
  }

  const Call& call_;
  const ConvShape shape_;
  const Int8Kernels& kernels_;
  const GridLoops& loops_;
  const GatherProblem problem_;
  const AxisTaps h_, w_;
  const int8_t* const low_;      // of wide codes; or null
  const float* const bias_;      // or null
  double* left_sums_ = nullptr;  // by pixel of the result
  Columns* windows_ = nullptr;   // by column of the result: the columns of the source
  int64_t of_worker_ = 0;
  int64_t* partial_ = nullptr;   // by worker: [source pixel], [source column], [source pixel]
  int32_t* tap_sums_ = nullptr;  // [tap][column]
  double *product_units_ = nullptr, *left_units_ = nullptr;  // by column
  double* parts_ = nullptr;                                  // by class, [column]
  const double** right_parts_ = nullptr;                     // by position, into parts_
  int32_t* upper_ = nullptr;  // sums of the upper codes, as the result lies
};

}  // namespace

absl::Status CodesForward(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  CodeGather(call, ProductShapeOf(call, call.in_shape(0), call.out_shape(0)), false).Run();
  return absl::OkStatus();
}

absl::Status CodesInputGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  CodeGather(call, ProductShapeOf(call, call.out_shape(0), call.in_shape(0)), true).Run();
  return absl::OkStatus();
}

}  // namespace runnel::cpu
