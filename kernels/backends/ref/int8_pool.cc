// Pools of integer recipes.

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/backends/ref/window.h"
#include "kernels/ir/arithmetic/integer_math.h"
#include "proto/base/tensor/quantize.h"

namespace runnel::ref {
namespace {

int64_t Planes(const Shape& shape) { return shape[0] * shape[1]; }

int32_t TapBits(int64_t taps) { return CeilLog2(static_cast<float>(taps)); }

// Tap of the first maximum of output (oh, ow), row-major in the window; padding never wins.
int64_t MaxTap(const Window& window, const int8_t* x, int64_t oh, int64_t ow) {
  int64_t best = -1;
  int best_value = 0;
  for (int64_t kh = window.h.TapBegin(oh); kh < window.h.TapEnd(oh); ++kh) {
    for (int64_t kw = window.w.TapBegin(ow); kw < window.w.TapEnd(ow); ++kw) {
      const int value = x[window.h.Input(oh, kh) * window.w.in + window.w.Input(ow, kw)];
      if (best >= 0 && value <= best_value) continue;
      best = kh * window.w.kernel + kw;
      best_value = value;
    }
  }
  return best;
}

int64_t PositionOf(const Window& window, int64_t o, int64_t tap) {
  return window.h.Input(o / window.w.out, tap / window.w.kernel) * window.w.in +
         window.w.Input(o % window.w.out, tap % window.w.kernel);
}

void FinishSums(const Call& call, int32_t exponent) {
  int64_t max_abs = 0;
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    max_abs = std::max<int64_t>(max_abs, std::abs(call.out<int32_t>(0)[i]));
  }
  call.out_tail(0) = {.exponent = exponent, .max_abs = max_abs};
}

}  // namespace

absl::Status Int8MaxPoolForward(const Call& call) {
  const Window window = WindowOf(call.attributes(), call.in_shape(0), call.out_shape(0));
  int64_t o = 0;
  for (int64_t plane = 0; plane < Planes(call.in_shape(0)); ++plane) {
    const int8_t* x = call.in<int8_t>(0) + plane * window.in_plane();
    for (int64_t at = 0; at < window.out_plane(); ++at, ++o) {
      const int64_t tap = MaxTap(window, x, at / window.w.out, at % window.w.out);
      call.out<int8_t>(0)[o] = x[PositionOf(window, at, tap)];
      if (call.has_output(1)) call.out<uint8_t>(1)[o] = static_cast<uint8_t>(tap);
    }
  }
  call.out_tail(0) = {.exponent = call.in_tail(0).exponent};
  return absl::OkStatus();
}

absl::Status Int8MaxPoolInputGradient(const Call& call) {
  const Window window = WindowOf(call.attributes(), call.out_shape(0), call.in_shape(0));
  const int8_t* dy = call.in<int8_t>(0);
  const uint8_t* taps = call.in<uint8_t>(1);
  int8_t* dx = call.out<int8_t>(0);
  std::vector<int64_t> sums(window.in_plane());
  for (int64_t plane = 0; plane < Planes(call.in_shape(0)); ++plane) {
    std::fill(sums.begin(), sums.end(), 0);
    for (int64_t o = 0; o < window.out_plane(); ++o) {
      sums[PositionOf(window, o, *taps++)] += *dy++;
    }
    for (int64_t sum : sums) *dx++ = SaturateMantissa(sum);
  }
  call.out_tail(0) = {.exponent = call.in_tail(0).exponent};
  return absl::OkStatus();
}

absl::Status Int8AvgPoolForward(const Call& call) {
  const Window window = WindowOf(call.attributes(), call.in_shape(0), call.out_shape(0));
  int32_t* sums = call.out<int32_t>(0);
  for (int64_t plane = 0; plane < Planes(call.in_shape(0)); ++plane) {
    const int8_t* x = call.in<int8_t>(0) + plane * window.in_plane();
    for (int64_t o = 0; o < window.out_plane(); ++o, ++sums) {
      *sums = 0;
      for (int64_t tap = 0; tap < window.taps(); ++tap) *sums += x[PositionOf(window, o, tap)];
    }
  }
  FinishSums(call, call.in_tail(0).exponent - TapBits(window.taps()));
  return absl::OkStatus();
}

absl::Status Int8AvgPoolInputGradient(const Call& call) {
  const Window window = WindowOf(call.attributes(), call.out_shape(0), call.in_shape(0));
  const int8_t* dy = call.in<int8_t>(0);
  int8_t* dx = call.out<int8_t>(0);
  std::fill(dx, dx + call.out_shape(0).elements(), int8_t{0});
  for (int64_t plane = 0; plane < Planes(call.in_shape(0)); ++plane, dx += window.in_plane()) {
    for (int64_t o = 0; o < window.out_plane(); ++o, ++dy) {
      for (int64_t tap = 0; tap < window.taps(); ++tap) dx[PositionOf(window, o, tap)] = *dy;
    }
  }
  call.out_tail(0) = {.exponent = call.in_tail(0).exponent - TapBits(window.taps())};
  return absl::OkStatus();
}

absl::Status Int8GlobalAvgPoolForward(const Call& call) {
  const int64_t inner = call.in_shape(0).elements() / Planes(call.in_shape(0));
  const int8_t* x = call.in<int8_t>(0);
  for (int64_t plane = 0; plane < Planes(call.in_shape(0)); ++plane) {
    int32_t sum = 0;
    for (int64_t i = 0; i < inner; ++i) sum += *x++;
    call.out<int32_t>(0)[plane] = sum;
  }
  FinishSums(call, call.in_tail(0).exponent - TapBits(inner));
  return absl::OkStatus();
}

absl::Status Int8GlobalAvgPoolInputGradient(const Call& call) {
  const int64_t inner = call.out_shape(0).elements() / Planes(call.out_shape(0));
  int8_t* dx = call.out<int8_t>(0);
  for (int64_t plane = 0; plane < Planes(call.out_shape(0)); ++plane) {
    for (int64_t i = 0; i < inner; ++i) *dx++ = call.in<int8_t>(0)[plane];
  }
  call.out_tail(0) = {.exponent = call.in_tail(0).exponent - TapBits(inner)};
  return absl::OkStatus();
}

}  // namespace runnel::ref
