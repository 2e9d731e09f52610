// The weight-gradient of codes: products of int8 (int8/int8_conv.h), whose sums become values row by
// row.

#include <algorithm>

#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/backends/cpu/grids/code_patches.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/backends/cpu/integer/product_slices.h"

namespace runnel::cpu {
namespace {

// Products of codes that an int32 holds: (2^17 - 1) * 2^14 < 2^31.
constexpr int64_t kMostProducts = 131071;

class CodeWeightGradient {
 public:
  CodeWeightGradient(const Call& call, const ConvShape& shape, const Window& window)
      : call_(call),
        shape_(shape),
        is_dilated_(window.dh > 1 || window.dw > 1),
        kernels_(RowOfCodes(call.machine, GridsAt(call, 3).bits())),
        loops_(*call.machine.grids),
        tapped_(TapsOfOutputs(shape, window.dh, window.dw, false)),
        low_(LowerCodes(call)),
        dy_(GridsAt(call, 2).At(0)),
        x_(GridsAt(call, 3).At(0)),
        adds_(call.context->accumulate) {}

  void Run() {
    SumOperands();
    SumTaps();
    const bool is_long = Int8WeightGradientReduction(shape_) > kMostProducts;
    is_long ? StoreLong() : StoreShort();
    if (call_.outputs.size() > 1) StoreBias();
  }

 private:
  int64_t taps() const { return shape_.taps(); }
  int64_t row() const { return taps() * shape_.group_in(); }  // elements of an output channel

  // Codes of each place and channel, over the samples.
  int64_t* SumSamples(const int8_t* codes, const int8_t* low, int64_t size) const {
    auto* sums = call_.Take<int64_t>(size);
    auto* parts = call_.Take<int32_t>(size);
    std::fill_n(parts, size, 0);
    for (int64_t n = 0; n < shape_.batch; ++n) loops_.add(codes + n * size, size, parts);
    for (int64_t i = 0; i < size; ++i) sums[i] = parts[i];
    if (low == nullptr) return sums;
    std::fill_n(parts, size, 0);
    for (int64_t n = 0; n < shape_.batch; ++n) loops_.add(low + n * size, size, parts);
    for (int64_t i = 0; i < size; ++i) sums[i] = 256 * sums[i] + parts[i];
    return sums;
  }

  void SumOperands() {
    dy_sums_ = SumSamples(call_.in<int8_t>(0), low_, shape_.out_h * shape_.out_w * shape_.out_c);
    x_sums_ = SumSamples(call_.in<int8_t>(1), nullptr, shape_.in_h * shape_.in_w * shape_.in_c);
  }

  // What each tap meets of either operand, and how often: first along each row, then over rows.
  void SumTaps() {
    const int64_t columns = shape_.kernel_w, outs = shape_.out_c, ins = shape_.in_c;
    int64_t* dy_rows = Zeros(shape_.out_h * columns * outs);
    int64_t* x_rows = Zeros(shape_.in_h * columns * ins);
    int64_t* met = Zeros(columns);
    for (int64_t x = 0; x < shape_.out_w; ++x) {
      for (const AxisTaps::Tap& w : tapped_.w.of[x]) {
        ++met[w.tap];
        for (int64_t y = 0; y < shape_.out_h; ++y)
          Add(dy_sums_ + (y * shape_.out_w + x) * outs, outs,
              dy_rows + (y * columns + w.tap) * outs);
        for (int64_t y = 0; y < shape_.in_h; ++y)
          Add(x_sums_ + (y * shape_.in_w + w.source) * ins, ins,
              x_rows + (y * columns + w.tap) * ins);
      }
    }
    dy_of_tap_ = Zeros(taps() * outs);
    x_of_tap_ = Zeros(taps() * ins);
    terms_ = Zeros(taps());
    for (int64_t y = 0; y < shape_.out_h; ++y) {
      for (const AxisTaps::Tap& h : tapped_.h.of[y]) {
        const int64_t first = h.tap * columns;
        Add(dy_rows + y * columns * outs, columns * outs, dy_of_tap_ + first * outs);
        Add(x_rows + h.source * columns * ins, columns * ins, x_of_tap_ + first * ins);
        for (int64_t w = 0; w < columns; ++w) terms_[first + w] += shape_.batch * met[w];
      }
    }
  }
  int64_t* Zeros(int64_t count) const {
    auto* sums = call_.Take<int64_t>(count);
    std::fill_n(sums, count, int64_t{0});
    return sums;
  }
  static void Add(const int64_t* from, int64_t count, int64_t* to) {
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
  }

  // Sums of int8 products, each in an int32, and those that need an int64.
  int32_t* Multiply(const int8_t* dy) const {
    auto* sums = call_.Take<int32_t>(shape_.weight_elements());
    MultiplyInto(dy, sums, Int8ConvWeightGradient, ConvPass::kWeightGradient);
    return sums;
  }
  int64_t* MultiplyLong(const int8_t* dy) const {
    auto* sums = call_.Take<int64_t>(shape_.weight_elements());
    MultiplyInto(dy, sums, Int8ConvWeightGradientWide, ConvPass::kWideWeightGradient);
    return sums;
  }

  template <typename Sum, typename Product>
  void MultiplyInto(const int8_t* dy, Sum* sums, const Product& product, ConvPass pass) const {
    const int8_t* x = call_.in<int8_t>(1);
    if (!is_dilated_) return product(Context(shape_, pass), shape_, dy, x, sums, nullptr, false);
    const CodePatches patches(tapped_, shape_.groups, shape_.in_h, shape_.in_w);
    const int64_t at_once = patches.SamplesAtOnce(shape_.batch);
    const Int8Context context = Context(patches.Shape(at_once, shape_.out_c), pass);
    int8_t* copied = patches.Take(call_, at_once);
    for (int64_t n = 0; n < shape_.batch; n += at_once) {
      const int64_t samples = std::min(at_once, shape_.batch - n);
      patches.Fill(call_.machine, x + n * patches.source_elements(), samples, copied);
      product(context, patches.Shape(samples, shape_.out_c),
              dy + n * shape_.out_h * shape_.out_w * shape_.out_c, copied, sums, nullptr, n > 0);
    }
  }
  // For fewer samples, too.
  Int8Context Context(const ConvShape& shape, ConvPass pass) const {
    ConvShape rest = shape;
    rest.batch = std::max<int64_t>(1, shape_.batch % shape.batch);
    const int workers = call_.machine.workers();
    const int64_t bytes = std::max(Int8WorkspaceBytes(kernels_, shape, pass, workers),
                                   Int8WorkspaceBytes(kernels_, rest, pass, workers));
    return {&kernels_, call_.machine.pool, call_.Take<std::byte>(bytes)};
  }

  // The parts of x's channels of group g, by tap.
  void FillRightParts(int64_t g, double* parts) const {
    const int64_t inputs = shape_.group_in();
    for (int64_t t = 0; t < taps(); ++t) {
      for (int64_t i = 0; i < inputs; ++i)
        parts[t * inputs + i] =
            RightPart(dy_, x_, x_of_tap_[t * shape_.in_c + g * inputs + i], terms_[t], 0);
    }
  }

  void StoreShort() const {
    const int32_t* sums = Multiply(low_ == nullptr ? call_.in<int8_t>(0) : low_);
    const int32_t* upper = low_ == nullptr ? nullptr : Multiply(call_.in<int8_t>(0));
    const int64_t inputs = shape_.group_in();
    auto* parts = call_.Take<double>(row());
    auto* units = call_.Take<double>(2 * inputs);
    std::fill_n(units, inputs, dy_.unit * x_.unit);
    std::fill_n(units + inputs, inputs, dy_.unit * x_.middle);
    auto* values = call_.Take<float>(2 * call_.machine.workers() * row());
    for (int64_t g = 0; g < shape_.groups; ++g) {
      FillRightParts(g, parts);
      ParallelFor(call_.machine, shape_.group_out(), [&](int worker, int64_t begin, int64_t end) {
        float* mine = values + 2 * worker * row();
        for (int64_t i = begin; i < end; ++i) {
          const int64_t c = g * shape_.group_out() + i;
          for (int64_t t = 0; t < taps(); ++t) {
            const int64_t at = c * row() + t * inputs;
            loops_.values({.sums = sums + at,
                           .upper = upper == nullptr ? nullptr : upper + at,
                           .left = static_cast<double>(dy_of_tap_[t * shape_.out_c + c]),
                           .product_units = units,
                           .left_units = units + inputs,
                           .right_parts = parts + t * inputs,
                           .count = inputs},
                          mine + t * inputs);
          }
          StoreRow(c, mine, mine + row());
        }
      });
    }
  }

  // Sums that an int32 does not hold.
  void StoreLong() const {
    int64_t* sums = MultiplyLong(low_ == nullptr ? call_.in<int8_t>(0) : low_);
    if (low_ != nullptr) {
      const int64_t* upper = MultiplyLong(call_.in<int8_t>(0));
      for (int64_t i = 0; i < shape_.weight_elements(); ++i) sums[i] += 256 * upper[i];
    }
    auto* values = call_.Take<float>(2 * row());
    for (int64_t c = 0; c < shape_.out_c; ++c) {
      const int64_t first = c / shape_.group_out() * shape_.group_in();
      for (int64_t i = 0; i < row(); ++i) {
        const int64_t t = i / shape_.group_in(), in = first + i % shape_.group_in();
        values[i] = ValueOfSums(dy_, x_,
                                {.products = sums[c * row() + i],
                                 .left = dy_of_tap_[t * shape_.out_c + c],
                                 .right = x_of_tap_[t * shape_.in_c + in],
                                 .terms = terms_[t]},
                                0);
      }
      StoreRow(c, values, values + row());
    }
  }

  // (kernel..., in) to (in, kernel...).
  void StoreRow(int64_t channel, const float* values, float* turned) const {
    float* to = call_.out(0) + channel * row();
    const int64_t inputs = shape_.group_in();
    const float* from = values;
    if (taps() > 1) {
      float* place = adds_ ? turned : to;
      call_.kernels().transpose(values, taps(), inputs, inputs, place, taps());
      if (!adds_) return;
      from = place;
    }
    if (adds_) {
      for (int64_t i = 0; i < row(); ++i) to[i] += from[i];
    } else {
      std::copy(from, from + row(), to);
    }
  }

  void StoreBias() const {
    const int64_t positions = shape_.out_h * shape_.out_w;
    for (int64_t c = 0; c < shape_.out_c; ++c) {
      int64_t sum = 0;
      for (int64_t p = 0; p < positions; ++p) sum += dy_sums_[p * shape_.out_c + c];
      const float value = SumOfCodes(dy_, sum, shape_.batch * positions);
      call_.out(1)[c] = adds_ ? call_.out(1)[c] + value : value;
    }
  }

  const Call& call_;
  const ConvShape shape_;
  const bool is_dilated_;
  const Int8Kernels& kernels_;
  const GridLoops& loops_;
  const OutputTaps tapped_;
  const int8_t* const low_;  // of wide codes; or null
  const CodeGrid dy_, x_;
  const bool adds_;
  int64_t *dy_sums_ = nullptr, *x_sums_ = nullptr;      // [place][channel], over samples
  int64_t *dy_of_tap_ = nullptr, *x_of_tap_ = nullptr;  // [tap][channel]
  int64_t* terms_ = nullptr;                            // by tap
};

}  // namespace

absl::Status CodesWeightGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const OpSpec& op = call.instruction->attributes;
  const Window window = op.kind == OpKind::kLinear ? Window() : WindowOf(op, call.in_shape(1));
  CodeWeightGradient(call, ProductShapeOf(call, call.in_shape(1), call.in_shape(0)), window).Run();
  return absl::OkStatus();
}

}  // namespace runnel::cpu
