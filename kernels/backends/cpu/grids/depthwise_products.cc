#include "kernels/backends/cpu/grids/depthwise_products.h"

#include <algorithm>

#include "kernels/backends/cpu/int8/depthwise.h"

namespace runnel::cpu {
namespace {

// Sums that go at once, for the second-level cache; of one sample for each thread at least.
constexpr int64_t kSumsAtOnce = 1 << 16;

class DepthwiseProduct {
 public:
  DepthwiseProduct(const Call& call, const ConvShape& shape, const OutputTaps& taps,
                   bool input_gradient, const DepthwiseOperands& operands)
      : call_(call),
        shape_(shape),
        taps_(taps),
        input_gradient_(input_gradient),
        operands_(operands),
        samples_(std::min<int64_t>(
            shape.batch, std::max<int64_t>(call.machine.workers(),
                                           kSumsAtOnce / (taps.positions() * shape.in_c)))),
        right_(call, taps, shape.in_c) {}

  void Run() {
    Allocate();
    FillColumns();
    for (int64_t n = 0; n < shape_.batch; n += samples_)
      RunSamples(n, std::min(samples_, shape_.batch - n));
  }

 private:
  int64_t channels() const { return shape_.in_c; }
  const int8_t* weights() const { return call_.in<int8_t>(1); }

  void Allocate() {
    const int64_t sums = samples_ * taps_.positions() * channels();
    sums_ = call_.Take<int32_t>(sums);
    lefts_ = call_.Take<int32_t>(sums);
    std::fill_n(lefts_, sums, 0);
    if (operands_.low != nullptr) {
      upper_sums_ = call_.Take<int32_t>(sums);
      upper_lefts_ = call_.Take<int32_t>(sums);
      std::fill_n(upper_lefts_, sums, 0);
    }
    product_units_ = call_.Take<double>(channels());
    left_units_ = call_.Take<double>(channels());
    ones_ = call_.Take<int8_t>(taps_.taps * channels());
    std::fill_n(ones_, taps_.taps * channels(), int8_t{1});
    const ConvPass pass = input_gradient_ ? ConvPass::kInputGradient : ConvPass::kForward;
    workspace_ =
        call_.Take<std::byte>(DepthwiseWorkspaceBytes(shape_, pass, call_.machine.workers()));
  }

  void FillColumns() {
    const CodeGrid left = GridsAt(call_, 2).At(0);
    const CodeGrids grids = GridsAt(call_, 3);
    for (int64_t c = 0; c < channels(); ++c) {
      const CodeGrid right = grids.At(c);
      product_units_[c] = left.unit * right.unit;
      left_units_[c] = left.unit * right.middle;
      needs_lefts_ = needs_lefts_ || left_units_[c] != 0;
    }
    auto* tap_sums = call_.Take<int32_t>(taps_.taps * channels());
    for (int64_t c = 0; c < channels(); ++c) {
      for (int64_t t = 0; t < taps_.taps; ++t)
        tap_sums[t * channels() + c] = weights()[c * taps_.taps + t];
    }
    right_.Fill(left, grids, 0, tap_sums, operands_.bias);
  }

  // Products with the weights, and with ones: the sums of the left codes.
  void Multiply(const int8_t* source, int64_t samples, int32_t* sums, int32_t* lefts) const {
    ConvShape shape = shape_;
    shape.batch = samples;
    const Int8Context context = {&RowOfCodes(call_.machine), call_.machine.pool, workspace_};
    RunDepthwise(context, shape, input_gradient_, source, weights(), sums, nullptr);
    if (needs_lefts_) RunDepthwise(context, shape, input_gradient_, source, ones_, lefts, nullptr);
  }

  void RunSamples(int64_t first, int64_t samples) const {
    const int64_t source =
        input_gradient_ ? shape_.out_h * shape_.out_w : shape_.in_h * shape_.in_w;
    const int64_t at = first * source * channels();
    Multiply((operands_.low == nullptr ? operands_.source : operands_.low) + at, samples, sums_,
             lefts_);
    if (operands_.low != nullptr)
      Multiply(operands_.source + at, samples, upper_sums_, upper_lefts_);
    float* result = call_.out(0) + first * taps_.positions() * channels();
    ParallelFor(call_.machine, samples * taps_.positions(), [&](int, int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) StorePixel(p, result + p * channels());
    });
  }

  void StorePixel(int64_t pixel, float* result) const {
    const int64_t at = pixel * channels();
    const bool is_wide = operands_.low != nullptr;
    call_.machine.grids->channel_values(
        {.sums = sums_ + at,
         .lefts = lefts_ + at,
         .upper_sums = is_wide ? upper_sums_ + at : nullptr,
         .upper_lefts = is_wide ? upper_lefts_ + at : nullptr,
         .product_units = product_units_,
         .left_units = left_units_,
         .right_parts = right_.by_position()[pixel % taps_.positions()],
         .count = channels()},
        result);
  }

  const Call& call_;
  const ConvShape shape_;
  const OutputTaps& taps_;
  const bool input_gradient_;
  const DepthwiseOperands operands_;
  const int64_t samples_;  // at once
  RightParts right_;
  bool needs_lefts_ = false;
  int32_t *sums_ = nullptr, *lefts_ = nullptr;              // as the result lies
  int32_t *upper_sums_ = nullptr, *upper_lefts_ = nullptr;  // of wide codes
  double *product_units_ = nullptr, *left_units_ = nullptr;
  int8_t* ones_ = nullptr;
  std::byte* workspace_ = nullptr;
};

}  // namespace

void RunDepthwiseProduct(const Call& call, const ConvShape& shape, const OutputTaps& taps,
                         bool input_gradient, const DepthwiseOperands& operands) {
  DepthwiseProduct(call, shape, taps, input_gradient, operands).Run();
}

}  // namespace runnel::cpu
