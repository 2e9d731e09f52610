// Pooling, channels-last.

#include <algorithm>

#include "kernels/backends/cpu/half/half_kernels.h"

namespace runnel::half {
namespace {

struct Pool {
  Image x, y;
  Window window;

  Pool(const Call& call, const Shape& x_shape, const Shape& y_shape)
      : x(ImageOf(x_shape)), y(ImageOf(y_shape)) {
    const OpCode code = call.instruction->code;
    if (code == OpCode::kGlobalAvgPoolForward || code == OpCode::kGlobalAvgPoolInputGradient) {
      window = {.kh = x.h, .kw = x.w};
      return;
    }
    window = cpu::WindowOf(call.instruction->attributes, x_shape);
    // Average pools have no padding, whatever their spec says.
    if (code == OpCode::kAvgPoolForward || code == OpCode::kAvgPoolInputGradient)
      window.ph = window.pw = 0;
  }

  // body(pixel of x, tap) for the taps of y's pixel that lie inside x, in ascending order.
  template <typename Body>
  void ForTaps(int64_t pixel, const Body& body) const {
    const int64_t n = pixel / y.positions(), at = pixel % y.positions();
    const int64_t h = at / y.w * window.sh - window.ph, w = at % y.w * window.sw - window.pw;
    for (int64_t row = std::max<int64_t>(h, 0); row < std::min(h + window.kh, x.h); ++row) {
      for (int64_t column = std::max<int64_t>(w, 0); column < std::min(w + window.kw, x.w);
           ++column)
        body((n * x.h + row) * x.w + column, (row - h) * window.kw + column - w);
    }
  }
  // body(pixel of y, tap) for the windows that x's pixel lies in, in ascending order.
  template <typename Body>
  void ForWindows(int64_t pixel, const Body& body) const {
    const int64_t n = pixel / x.positions(), at = pixel % x.positions();
    const int64_t h = at / x.w + window.ph, w = at % x.w + window.pw;
    const auto first = [](int64_t place, int64_t kernel, int64_t stride) {
      return place < kernel ? 0 : (place - kernel) / stride + 1;
    };
    for (int64_t oh = first(h, window.kh, window.sh); oh <= std::min(h / window.sh, y.h - 1);
         ++oh) {
      for (int64_t ow = first(w, window.kw, window.sw); ow <= std::min(w / window.sw, y.w - 1);
           ++ow)
        body((n * y.h + oh) * y.w + ow, (h - oh * window.sh) * window.kw + w - ow * window.sw);
    }
  }
  int64_t taps() const { return window.kh * window.kw; }
};

// body(worker, pixel) on all pixels of an image.
template <typename Body>
void OverPixels(const Call& call, const Image& image, const Body& body) {
  ParallelFor(call.machine, image.rows(), [&](int worker, int64_t begin, int64_t end) {
    for (int64_t pixel = begin; pixel < end; ++pixel) body(worker, pixel);
  });
}

}  // namespace

absl::Status MaxPoolForward(Calls calls) {
  const Call& call = calls[0];
  const Pool p(call, call.in_shape(0), call.out_shape(0));
  const int64_t channels = p.x.c;
  uint8_t* const indices = call.outputs.size() > 1 ? call.out<uint8_t>(1) : nullptr;
  float* const values = call.Take<float>(call.machine.workers() * 2 * channels);
  int32_t* const places = call.Take<int32_t>(call.machine.workers() * channels);
  const Conversions& from = OfInput(call, 0);
  OverPixels(call, p.y, [&](int worker, int64_t pixel) {
    float *const best = values + worker * 2 * channels, *const x = best + channels;
    int32_t* const where = places + worker * channels;
    bool first = true;
    p.ForTaps(pixel, [&](int64_t source, int64_t tap) {
      from.widen(call.in<uint16_t>(0) + source * channels, channels, first ? best : x);
      if (first) std::fill_n(where, channels, static_cast<int32_t>(tap));
      if (!first) call.kernels().take_maximum(x, channels, static_cast<int32_t>(tap), best, where);
      first = false;
    });
    Store(call, best, channels, pixel * channels);
    if (indices != nullptr) std::copy_n(where, channels, indices + pixel * channels);
  });
  return absl::OkStatus();
}

absl::Status MaxPoolInputGradient(Calls calls) {
  const Call& call = calls[0];
  const Pool p(call, call.out_shape(0), call.in_shape(0));
  const int64_t channels = p.x.c;
  float* const rows = call.Take<float>(call.machine.workers() * channels);
  double* const all_sums = call.Take<double>(call.machine.workers() * channels);
  const Conversions& from = OfInput(call, 0);
  OverPixels(call, p.x, [&](int worker, int64_t pixel) {
    float* const dy = rows + worker * channels;
    double* const sums = all_sums + worker * channels;
    std::fill_n(sums, channels, 0.0);
    p.ForWindows(pixel, [&](int64_t source, int64_t tap) {
      from.widen(call.in<uint16_t>(0) + source * channels, channels, dy);
      call.machine.half->add_where(dy, call.in<uint8_t>(1) + source * channels,
                                   static_cast<uint8_t>(tap), channels, sums);
    });
    call.machine.half->divide(sums, channels, 1.0, dy);
    Store(call, dy, channels, pixel * channels);
  });
  return absl::OkStatus();
}

namespace {

// Each pixel of `target` is the sum of pixels of x over the taps, divided by their number.
template <typename ForSources>
void Average(const Call& call, const Image& target, int64_t taps, const ForSources& for_sources) {
  const int64_t channels = target.c;
  float* const rows = call.Take<float>(call.machine.workers() * channels);
  double* const all_sums = call.Take<double>(call.machine.workers() * channels);
  const Conversions& from = OfInput(call, 0);
  OverPixels(call, target, [&](int worker, int64_t pixel) {
    float* const x = rows + worker * channels;
    double* const sums = all_sums + worker * channels;
    std::fill_n(sums, channels, 0.0);
    for_sources(pixel, [&](int64_t source, int64_t) {
      from.widen(call.in<uint16_t>(0) + source * channels, channels, x);
      call.machine.half->add_rows(x, 1, channels, sums);
    });
    call.machine.half->divide(sums, channels, static_cast<double>(taps), x);
    Store(call, x, channels, pixel * channels);
  });
}

}  // namespace

absl::Status AvgPoolForward(Calls calls) {
  const Call& call = calls[0];
  const Pool p(call, call.in_shape(0), call.out_shape(0));
  Average(call, p.y, p.taps(), [&p](int64_t pixel, const auto& body) { p.ForTaps(pixel, body); });
  return absl::OkStatus();
}

absl::Status AvgPoolInputGradient(Calls calls) {
  const Call& call = calls[0];
  const Pool p(call, call.out_shape(0), call.in_shape(0));
  Average(call, p.x, p.taps(),
          [&p](int64_t pixel, const auto& body) { p.ForWindows(pixel, body); });
  return absl::OkStatus();
}

}  // namespace runnel::half
