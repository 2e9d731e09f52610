// Depthwise convolutions, an image at a time in a zero-padded copy.

#include <algorithm>
#include <vector>

#include "kernels/cpu/fp32/conv_axes.h"
#include "kernels/cpu/fp32/conv_product.h"
#include "kernels/cpu/fp32/fp32_kernels.h"

namespace runnel::fp32 {
namespace {

struct Depthwise {
  Image source, target;
  Axis h, w;
  int64_t kernel_w = 1, tap_count = 1;
  const float* x = nullptr;
  const float* weight = nullptr;  // (C, taps)
  const float* bias = nullptr;
  float* y = nullptr;

  int64_t row_floats() const { return (w.high - w.low) * source.c; }
  int64_t padded_floats() const { return (h.high - h.low) * row_floats(); }
};

Depthwise Forward(const Call& call) {
  Depthwise d;
  const Window window = WindowOf(call.instruction->attributes, call.in_shape(0));
  d.source = ImageOf(call.in_shape(0));
  d.target = ImageOf(call.out_shape(0));
  d.h = ForwardAxis(d.source.h, d.target.h, window.kh, window.sh, window.ph);
  d.w = ForwardAxis(d.source.w, d.target.w, window.kw, window.sw, window.pw);
  d.kernel_w = window.kw;
  d.tap_count = window.kh * window.kw;
  d.x = call.in(0);
  d.weight = call.in(1);
  d.bias = call.inputs.size() > 2 ? call.in(2) : nullptr;
  d.y = call.out(0);
  return d;
}

Depthwise Backward(const Call& call) {
  Depthwise d;
  const Window window = WindowOf(call.instruction->attributes, call.in_shape(0));
  d.source = ImageOf(call.in_shape(0));
  d.target = ImageOf(call.out_shape(0));
  d.h = GradientAxis(d.target.h, d.source.h, window.kh, window.sh, window.ph);
  d.w = GradientAxis(d.target.w, d.source.w, window.kw, window.sw, window.pw);
  d.kernel_w = window.kw;
  d.tap_count = window.kh * window.kw;
  d.x = call.in(0);
  d.weight = call.in(1);
  d.y = call.out(0);
  return d;
}

// The weights of a pair of passes, (taps, C).
float* PassWeights(const Call& call, const Depthwise& d, const AxisPass& h, const AxisPass& w) {
  float* out = call.Take<float>(std::max<int64_t>(1, h.taps * w.taps) * d.source.c);
  for (int64_t i = 0; i < h.taps; ++i) {
    for (int64_t j = 0; j < w.taps; ++j) {
      const int64_t tap =
          (h.tap_begin + i * h.tap_step) * d.kernel_w + w.tap_begin + j * w.tap_step;
      float* row = out + (i * w.taps + j) * d.source.c;
      for (int64_t c = 0; c < d.source.c; ++c) row[c] = d.weight[c * d.tap_count + tap];
    }
  }
  return out;
}

struct Pass {
  const AxisPass* h;
  const AxisPass* w;
  const float* weight;
};

void RunImage(const Call& call, const Depthwise& d, const std::vector<Pass>& passes,
              const float* padded, float* y, const float** rows) {
  for (const Pass& pass : passes) {
    DepthwiseRow row;
    row.rows = rows;
    row.taps_h = pass.h->taps;
    row.taps_w = pass.w->taps;
    row.stride = pass.w->source_step;
    row.weight = pass.weight;
    row.bias = d.bias;
    row.channels = d.source.c;
    row.columns = pass.w->count;
    row.y_step = pass.w->target_step * d.target.c;
    const int64_t left = (pass.w->source_begin - d.w.low) * d.source.c;
    for (int64_t i = 0; i < pass.h->count; ++i) {
      const int64_t top = pass.h->source_begin + i * pass.h->source_step - d.h.low;
      for (int64_t t = 0; t < pass.h->taps; ++t) {
        rows[t] = padded + (top + t) * d.row_floats() + left;
      }
      const int64_t target =
          (pass.h->target_begin + i * pass.h->target_step) * d.target.w + pass.w->target_begin;
      row.y = y + target * d.target.c;
      call.kernels().depthwise_row(row);
    }
  }
}

void Run(const Call& call, const Depthwise& d) {
  std::vector<Pass> passes;
  for (const AxisPass& h : d.h.passes) {
    for (const AxisPass& w : d.w.passes) passes.push_back({&h, &w, PassWeights(call, d, h, w)});
  }
  const int64_t workers = call.machine.workers();
  float* padded = call.Take<float>(workers * d.padded_floats());
  std::fill_n(padded, workers * d.padded_floats(), 0.0f);
  ParallelFor(call.machine, d.source.n, [&](int worker, int64_t begin, int64_t end) {
    float* image = padded + worker * d.padded_floats();
    std::vector<const float*> rows(static_cast<size_t>(d.h.high - d.h.low + 1));
    for (int64_t n = begin; n < end; ++n) {
      PadImages(d.x + n * d.source.positions() * d.source.c, 1, d.source, d.h, d.w, image);
      RunImage(call, d, passes, image, d.y + n * d.target.positions() * d.target.c, rows.data());
    }
  });
}

constexpr int64_t kSumPixels = 256;  // summed in single precision, double across

}  // namespace

void DepthwiseForward(const Call& call) { Run(call, Forward(call)); }
void DepthwiseInputGradient(const Call& call) { Run(call, Backward(call)); }

void DepthwiseWeightGradient(const Call& call) {
  const Window window = WindowOf(call.instruction->attributes, call.in_shape(1));
  const Image x = ImageOf(call.in_shape(1)), y = ImageOf(call.in_shape(0));
  const Axis h = ForwardAxis(x.h, y.h, window.kh, window.sh, window.ph);
  const Axis w = ForwardAxis(x.w, y.w, window.kw, window.sw, window.pw);
  const int64_t channels = x.c, taps = window.kh * window.kw;
  const int64_t row_floats = (w.high - w.low) * channels;
  const int64_t image_floats = (h.high - h.low) * row_floats;
  float* padded = call.Take<float>(image_floats);
  std::fill_n(padded, image_floats, 0.0f);
  float* part = call.Take<float>(taps * channels);
  double* total = call.Take<double>(taps * channels);
  std::fill_n(part, taps * channels, 0.0f);
  std::fill_n(total, taps * channels, 0.0);
  DepthwiseOuter d = {.x = padded,
                      .x_row = row_floats,
                      .rows = y.h,
                      .columns = y.w,
                      .taps_h = window.kh,
                      .taps_w = window.kw,
                      .stride_h = window.sh,
                      .stride_w = window.sw,
                      .channels = channels,
                      .sums = part};
  const int64_t unit = call.kernels().width;
  const int64_t images = std::max<int64_t>(1, kSumPixels / y.positions());
  for (int64_t n = 0; n < x.n; ++n) {
    PadImages(call.in(1) + n * x.positions() * channels, 1, x, h, w, padded);
    d.dy = call.in(0) + n * y.positions() * channels;
    ParallelFor(call.machine, (channels + unit - 1) / unit, [&](int, int64_t begin, int64_t end) {
      DepthwiseOuter mine = d;
      mine.channel_begin = begin * unit;
      mine.channel_end = std::min(channels, end * unit);
      call.kernels().depthwise_outer(mine);
    });
    if ((n + 1) % images != 0 && n + 1 != x.n) continue;
    for (int64_t i = 0; i < taps * channels; ++i) total[i] += part[i];
    std::fill_n(part, taps * channels, 0.0f);
  }
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t t = 0; t < taps; ++t) {
      float& target = call.out(0)[c * taps + t];
      const float value = static_cast<float>(total[t * channels + c]);
      target = call.context->accumulate ? target + value : value;
    }
  }
}

}  // namespace runnel::fp32
