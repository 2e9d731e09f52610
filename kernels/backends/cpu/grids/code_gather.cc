// Forward and input-gradient of codes: products of int8 (int8/gather_conv.h), whose sums become values
// as they leave the tiles.

#include <algorithm>

#include "kernels/backends/cpu/grids/code_patches.h"
#include "kernels/backends/cpu/grids/depthwise_products.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/backends/cpu/grids/right_parts.h"
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

// What a product multiplies: its left operand are the codes that it gathers from, the right one are
// the weights.
struct GatherShape {
  ConvShape shape;                    // of the products, of all samples that go at once
  int64_t rest = 0;                   // samples of a last, smaller Run; 0: there is none
  bool input_gradient = false;        // how the products gather
  const OutputTaps* reads = nullptr;  // of their outputs
  // Of the operator's: the same, unless there are patches.
  const OutputTaps* taps = nullptr;
  const int8_t* weights = nullptr;
  const float* bias = nullptr;
  bool is_wide = false;
};

class CodeGather {
 public:
  CodeGather(const Call& call, const GatherShape& gather)
      : call_(call),
        gather_(gather),
        shape_(gather_.shape),
        kernels_(RowOfCodes(call.machine, GridsAt(call, 3).bits())),
        loops_(*call.machine.grids),
        problem_(GatherProblemOf(gather.shape, gather.input_gradient)),
        right_(call, *gather.taps, problem_.out_c) {
    Allocate();
  }

  // low: with is_wide.
  void Run(const int8_t* codes, const int8_t* low, int64_t samples, float* result) {
    problem_.batch = samples;
    for (int64_t g = 0; g < shape_.groups; ++g) {
      SumLeft(g, codes, low);
      SumWeights(g);
      FillColumns(g);
      Multiply(g, codes, low, result);
    }
  }

 private:
  int64_t positions() const { return problem_.out_h * problem_.out_w; }
  int64_t sources() const { return problem_.source_h * problem_.source_w; }
  const int8_t* WeightsOf(int64_t g) const {
    return gather_.weights + g * shape_.group_out() * problem_.weight_row;
  }

  struct Columns {
    int64_t begin = 0, end = 0;
  };

  void Allocate() {
    const int64_t columns = problem_.out_c;
    const int threads = call_.machine.workers();
    GatherProblem rest = problem_;
    if (gather_.rest > 0) rest.batch = gather_.rest;
    // Fewer samples may need more: whether all threads share packed panels depends on their number.
    const int64_t bytes =
        std::max<int64_t>({64, GatherWorkspaceBytes(kernels_, problem_, threads, false),
                           GatherWorkspaceBytes(kernels_, rest, threads, false)});
    context_ = {&kernels_, call_.machine.pool, call_.Take<std::byte>(bytes)};
    left_sums_ = call_.Take<double>(problem_.batch * positions());
    of_worker_ = 2 * sources() + problem_.source_w + 1;
    windows_ = call_.Take<Columns>(problem_.out_w);
    for (int64_t x = 0; x < problem_.out_w; ++x) {
      const std::vector<AxisTaps::Tap>& taps = gather_.reads->w.of[x];
      windows_[x] = {};
      if (taps.empty()) continue;
      const auto [least, most] = std::minmax(taps.front().source, taps.back().source);
      windows_[x] = {least, most + 1};
    }
    partial_ = call_.Take<int64_t>(call_.machine.workers() * of_worker_);
    tap_sums_ = call_.Take<int32_t>(gather_.taps->taps * columns);
    product_units_ = call_.Take<double>(columns);
    left_units_ = call_.Take<double>(columns);
    if (gather_.is_wide)
      upper_ = call_.Take<int32_t>(problem_.batch * positions() * problem_.out_pixel);
  }

  // The codes that each output reads: of pixels, then along columns, then along rows.
  void SumLeft(int64_t g, const int8_t* codes, const int8_t* low) {
    ParallelFor(call_.machine, problem_.batch, [&](int worker, int64_t begin, int64_t end) {
      int64_t* pixels = partial_ + worker * of_worker_;
      for (int64_t n = begin; n < end; ++n) {
        const int64_t first = n * sources() * problem_.source_pixel + g * problem_.source_c;
        SumPixels(codes + first, low == nullptr ? nullptr : low + first, pixels);
        SumWindows(pixels, pixels + sources(), left_sums_ + n * positions());
      }
    });
  }

  void SumPixels(const int8_t* codes, const int8_t* low, int64_t* pixels) const {
    loops_.pixel_sums(codes, sources(), problem_.source_pixel, problem_.source_c, pixels);
    if (low == nullptr) return;
    int64_t* of_low = pixels + of_worker_ - sources();
    loops_.pixel_sums(low, sources(), problem_.source_pixel, problem_.source_c, of_low);
    for (int64_t p = 0; p < sources(); ++p) pixels[p] = 256 * pixels[p] + of_low[p];
  }

  // The sources of an output lie side by side, so a sum is the difference of two sums from the left.
  void SumWindows(const int64_t* pixels, int64_t* row, double* sums) const {
    const int64_t width = problem_.source_w;
    for (int64_t y = 0; y < problem_.out_h; ++y, sums += problem_.out_w) {
      std::fill_n(row, width + 1, int64_t{0});
      for (const AxisTaps::Tap& tap : gather_.reads->h.of[y]) {
        for (int64_t x = 0; x < width; ++x) row[x + 1] += pixels[tap.source * width + x];
      }
      for (int64_t x = 0; x < width; ++x) row[x + 1] += row[x];
      for (int64_t x = 0; x < problem_.out_w; ++x)
        sums[x] = static_cast<double>(row[windows_[x].end] - row[windows_[x].begin]);
    }
  }

  // The weights' codes by tap and column.
  void SumWeights(int64_t g) {
    const int64_t taps = gather_.taps->taps, terms = gather_.taps->terms;
    const int8_t* w = WeightsOf(g);
    if (problem_.input_gradient) {
      const int64_t row = taps * shape_.group_in();
      std::fill_n(tap_sums_, row, 0);
      for (int64_t c = 0; c < terms; ++c) loops_.add(w + c * problem_.weight_row, row, tap_sums_);
      return;
    }
    for (int64_t c = 0; c < problem_.out_c; ++c) {
      for (int64_t t = 0; t < taps; ++t)
        tap_sums_[t * problem_.out_c + c] =
            loops_.sum(w + c * problem_.weight_row + t * terms, terms);
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
    right_.Fill(left, weights, g * columns, tap_sums_, gather_.bias);
  }

  void Multiply(int64_t g, const int8_t* codes, const int8_t* low, float* result) const {
    const int64_t from = g * problem_.source_c, to = g * problem_.out_c;
    if (low != nullptr) {
      RunGather(context_, problem_,
                {.source = codes + from, .weights = WeightsOf(g), .out = upper_ + to});
    }
    ValueSink sink(loops_,
                   {.pixel = problem_.out_pixel,
                    .positions = positions(),
                    .upper = low == nullptr ? nullptr : upper_ + to,
                    .left_sums = left_sums_,
                    .product_units = product_units_,
                    .left_units = left_units_,
                    .right_parts = right_.by_position()},
                   result + to);
    RunGather(
        context_, problem_,
        {.source = (low == nullptr ? codes : low) + from, .weights = WeightsOf(g), .sink = &sink});
  }

  const Call& call_;
  const GatherShape gather_;
  const ConvShape& shape_;
  const Int8Kernels& kernels_;
  const GridLoops& loops_;
  GatherProblem problem_;
  RightParts right_;
  Int8Context context_;
  double* left_sums_ = nullptr;  // by pixel of the result
  Columns* windows_ = nullptr;   // by column of the result: the columns of the source
  int64_t of_worker_ = 0;
  int64_t* partial_ = nullptr;   // by worker: [source pixel], [source column], [source pixel]
  int32_t* tap_sums_ = nullptr;  // [tap][column]
  double *product_units_ = nullptr, *left_units_ = nullptr;  // by column
  int32_t* upper_ = nullptr;  // sums of the upper codes, as the result lies
};

// (out, kernel..., in) to (in, kernel..., out) of each group.
int8_t* TurnedWeights(const Call& call, const ConvShape& s) {
  constexpr int64_t kReadBehind = 64;
  auto* turned = call.Take<int8_t>(s.weight_elements() + kReadBehind);
  const int8_t* w = call.in<int8_t>(1);
  for (int64_t out = 0; out < s.out_c; ++out) {
    const int64_t g = out / s.group_out(), place = out % s.group_out();
    for (int64_t tap = 0; tap < s.taps(); ++tap) {
      for (int64_t in = 0; in < s.group_in(); ++in)
        turned[((g * s.group_in() + in) * s.taps() + tap) * s.group_out() + place] = *w++;
    }
  }
  return turned;
}

// What a product gathers from: x, or the gradient of the output.
struct LeftOperand {
  bool is_error = false;
  const int8_t* codes = nullptr;
  const int8_t* low = nullptr;  // of wide ones; or null
};

// Patch by patch, samples after samples.
void MultiplyPatches(const Call& call, const ConvShape& shape, const OutputTaps& taps,
                     const LeftOperand& left, const float* bias) {
  const bool back = left.is_error;
  const CodePatches patches(taps, shape.groups, back ? shape.out_h : shape.in_h,
                            back ? shape.out_w : shape.in_w);
  const int64_t at_once = patches.SamplesAtOnce(shape.batch);
  const ConvShape product = patches.Shape(at_once, back ? shape.in_c : shape.out_c);
  const OutputTaps reads = TapsOfOutputs(product, 1, 1, false);
  CodeGather gather(call, {.shape = product,
                           .rest = shape.batch % at_once,
                           .reads = &reads,
                           .taps = &taps,
                           .weights = back ? TurnedWeights(call, shape) : call.in<int8_t>(1),
                           .bias = bias,
                           .is_wide = left.low != nullptr});
  int8_t* codes = patches.Take(call, at_once);
  int8_t* low = left.low == nullptr ? nullptr : patches.Take(call, at_once);
  for (int64_t n = 0; n < shape.batch; n += at_once) {
    const int64_t samples = std::min(at_once, shape.batch - n);
    const int64_t from = n * patches.source_elements();
    patches.Fill(call.machine, left.codes + from, samples, codes);
    if (low != nullptr) patches.Fill(call.machine, left.low + from, samples, low);
    gather.Run(codes, low, samples,
               call.out(0) + n * product.out_h * product.out_w * product.out_c);
  }
}

void MultiplyCodes(const Call& call, const ConvShape& shape, const Shape& x,
                   const LeftOperand& left, const float* bias) {
  const OpSpec& op = call.instruction->attributes;
  const Window window = op.kind == OpKind::kLinear ? Window() : WindowOf(op, x);
  const OutputTaps taps = TapsOfOutputs(shape, window.dh, window.dw, left.is_error);
  if (window.dh > 1 || window.dw > 1) return MultiplyPatches(call, shape, taps, left, bias);
  if (shape.depthwise())
    return RunDepthwiseProduct(call, shape, taps, left.is_error,
                               {.source = left.codes, .low = left.low, .bias = bias});
  CodeGather(call, {.shape = shape,
                    .input_gradient = left.is_error,
                    .reads = &taps,
                    .taps = &taps,
                    .weights = call.in<int8_t>(1),
                    .bias = bias,
                    .is_wide = left.low != nullptr})
      .Run(left.codes, left.low, shape.batch, call.out(0));
}

}  // namespace

absl::Status CodesForward(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  MultiplyCodes(call, ProductShapeOf(call, call.in_shape(0), call.out_shape(0)), call.in_shape(0),
                {.codes = call.in<int8_t>(0)}, call.inputs.size() > 4 ? call.in(4) : nullptr);
  return absl::OkStatus();
}

absl::Status CodesInputGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  MultiplyCodes(call, ProductShapeOf(call, call.out_shape(0), call.in_shape(0)), call.out_shape(0),
                {.is_error = true, .codes = call.in<int8_t>(0), .low = LowerCodes(call)}, nullptr);
  return absl::OkStatus();
}

}  // namespace runnel::cpu
