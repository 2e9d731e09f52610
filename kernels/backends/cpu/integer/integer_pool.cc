// Pools of integer recipes, channels-last.

#include <algorithm>
#include <cstring>

#include "kernels/backends/cpu/integer/integer_kernels.h"
#include "proto/base/tensor/quantize.h"

namespace runnel::cpu {
namespace {

constexpr int kMaxTaps = 256;

struct Geometry {
  Image in, out;
  Window window;

  // The taps of output (oh, ow) that lie inside the input: their offsets in elements from the
  // image's first pixel and their numbers, row-major in the window. Returns how many.
  int Taps(int64_t oh, int64_t ow, int64_t* offsets, uint8_t* numbers) const {
    int count = 0;
    for (int64_t kh = 0; kh < window.kh; ++kh) {
      const int64_t h = oh * window.sh + kh - window.ph;
      if (h < 0 || h >= in.h) continue;
      for (int64_t kw = 0; kw < window.kw; ++kw) {
        const int64_t w = ow * window.sw + kw - window.pw;
        if (w < 0 || w >= in.w) continue;
        offsets[count] = (h * in.w + w) * in.c;
        numbers[count++] = static_cast<uint8_t>(kh * window.kw + kw);
      }
    }
    return count;
  }
  bool overlaps() const { return window.kh > window.sh || window.kw > window.sw; }
};

Geometry GeometryOf(const Call& call, const Shape& in, const Shape& out) {
  return {ImageOf(in), ImageOf(out), WindowOf(call.instruction->attributes, in)};
}

// Calls body(worker, image, oh, ow) for every output position; a worker has whole images.
template <typename Body>
void ForEachOutput(const Call& call, const Geometry& g, const Body& body) {
  ParallelFor(call.machine, g.in.n, [&](int worker, int64_t first, int64_t last) {
    for (int64_t n = first; n < last; ++n) {
      for (int64_t oh = 0; oh < g.out.h; ++oh) {
        for (int64_t ow = 0; ow < g.out.w; ++ow) body(worker, n, oh, ow);
      }
    }
  });
}

int32_t TapBits(int64_t taps) { return CeilLog2(static_cast<float>(taps)); }

}  // namespace

absl::Status RunInt8MaxPool(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const Geometry g = GeometryOf(call, call.in_shape(0), call.out_shape(0));
  uint8_t* indices = call.outputs.size() > 1 ? call.out<uint8_t>(1) : nullptr;
  const int64_t channels = g.in.c;
  // Windows without indices may have any number of taps.
  const int64_t all_taps = g.window.kh * g.window.kw;
  auto* all_offsets = call.Take<int64_t>(call.machine.workers() * all_taps);
  auto* all_numbers = call.Take<uint8_t>(call.machine.workers() * all_taps);
  auto* all_pointers = call.Take<const int8_t*>(call.machine.workers() * all_taps);
  ForEachOutput(call, g, [&](int worker, int64_t n, int64_t oh, int64_t ow) {
    int64_t* offsets = all_offsets + worker * all_taps;
    uint8_t* numbers = all_numbers + worker * all_taps;
    const int8_t** taps = all_pointers + worker * all_taps;
    const int count = g.Taps(oh, ow, offsets, numbers);
    const int8_t* x = call.in<int8_t>(0) + n * g.in.positions() * channels;
    for (int t = 0; t < count; ++t) taps[t] = x + offsets[t];
    const int64_t to = ((n * g.out.h + oh) * g.out.w + ow) * channels;
    uint8_t* index = indices == nullptr ? nullptr : indices + to;
    call.machine.integer->max_of_taps(taps, count, channels, call.out<int8_t>(0) + to, index);
    if (index == nullptr || count == g.window.kh * g.window.kw) return;
    for (int64_t c = 0; c < channels; ++c) index[c] = numbers[index[c]];  // the edge of the image
  });
  TailOfOutput(call, 0) = {.exponent = TailOfInput(call, 0).exponent};
  return absl::OkStatus();
}

absl::Status RunInt8MaxPoolGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const Geometry g = GeometryOf(call, call.out_shape(0), call.in_shape(0));
  const int64_t channels = g.in.c;
  const int8_t* dy = call.in<int8_t>(0);
  const uint8_t* indices = call.in<uint8_t>(1);
  int8_t* dx = call.out<int8_t>(0);
  const bool overlaps = g.overlaps();
  // Every element of dx belongs to a window.
  const bool covers = !overlaps && g.window.kh == g.window.sh && g.window.kw == g.window.sw &&
                      g.window.ph == 0 && g.window.pw == 0 && g.out.h * g.window.sh == g.in.h &&
                      g.out.w * g.window.sw == g.in.w;
  const int64_t plane = g.in.positions() * channels;
  int32_t* sums = overlaps ? call.Take<int32_t>(plane * call.machine.workers()) : nullptr;
  ParallelFor(call.machine, g.in.n, [&](int worker, int64_t first, int64_t last) {
    int64_t offsets[kMaxTaps];
    uint8_t numbers[kMaxTaps];
    int8_t* taps[kMaxTaps];
    for (int64_t n = first; n < last; ++n) {
      int8_t* image = dx + n * plane;
      int32_t* sum = overlaps ? sums + worker * plane : nullptr;
      if (overlaps) std::fill(sum, sum + plane, 0);
      if (!covers) std::memset(image, 0, static_cast<size_t>(plane));
      for (int64_t o = 0; o < g.out.positions(); ++o) {
        const int count = g.Taps(o / g.out.w, o % g.out.w, offsets, numbers);
        const int64_t from = (n * g.out.positions() + o) * channels;
        if (!overlaps) {
          for (int t = 0; t < count; ++t) taps[t] = image + offsets[t];
          call.machine.integer->scatter_taps(dy + from, indices + from, numbers, count, channels,
                                             taps);
          continue;
        }
        for (int t = 0; t < count; ++t) {
          for (int64_t c = 0; c < channels; ++c) {
            sum[offsets[t] + c] += indices[from + c] == numbers[t] ? dy[from + c] : 0;
          }
        }
      }
      for (int64_t i = 0; overlaps && i < plane; ++i) {
        image[i] = static_cast<int8_t>(std::clamp(sum[i], -127, 127));
      }
    }
  });
  TailOfOutput(call, 0) = {.exponent = TailOfInput(call, 0).exponent};
  return absl::OkStatus();
}

namespace {

// Sums of `g`'s windows, their largest magnitude and the exponent of a mean over `taps`.
void SumWindows(const Call& call, const Geometry& g, int64_t taps) {
  const int64_t channels = g.in.c;
  int32_t* acc = call.out<int32_t>(0);
  std::memset(acc, 0, static_cast<size_t>(g.out.rows() * channels) * sizeof(int32_t));
  ForEachOutput(call, g, [&](int, int64_t n, int64_t oh, int64_t ow) {
    const int8_t* x = call.in<int8_t>(0) + n * g.in.positions() * channels;
    int32_t* sums = acc + ((n * g.out.h + oh) * g.out.w + ow) * channels;
    for (int64_t kh = 0; kh < g.window.kh; ++kh) {
      for (int64_t kw = 0; kw < g.window.kw; ++kw) {
        const int64_t h = oh * g.window.sh + kh, w = ow * g.window.sw + kw;
        call.machine.integer->add_to_sums(x + (h * g.in.w + w) * channels, channels, sums);
      }
    }
  });
  TailOfOutput(call, 0) = {.exponent = TailOfInput(call, 0).exponent - TapBits(taps),
                           .max_abs = call.machine.int8->max_abs(acc, g.out.rows() * channels)};
}

void SpreadWindows(const Call& call, const Geometry& g, int64_t taps) {
  const int64_t channels = g.in.c;
  int8_t* dx = call.out<int8_t>(0);
  std::memset(dx, 0, static_cast<size_t>(g.in.rows() * channels));
  ForEachOutput(call, g, [&](int, int64_t n, int64_t oh, int64_t ow) {
    const int8_t* dy = call.in<int8_t>(0) + ((n * g.out.h + oh) * g.out.w + ow) * channels;
    int8_t* image = dx + n * g.in.positions() * channels;
    for (int64_t kh = 0; kh < g.window.kh; ++kh) {
      for (int64_t kw = 0; kw < g.window.kw; ++kw) {
        const int64_t h = oh * g.window.sh + kh, w = ow * g.window.sw + kw;
        std::memcpy(image + (h * g.in.w + w) * channels, dy, static_cast<size_t>(channels));
      }
    }
  });
  TailOfOutput(call, 0) = {.exponent = TailOfInput(call, 0).exponent - TapBits(taps)};
}

// A mean over the whole plane as one window.
Geometry GlobalGeometry(const Shape& in) {
  const Image image = ImageOf(in);
  return {image, {image.n, image.c, 1, 1}, {image.h, image.w, image.h, image.w, 0, 0}};
}

}  // namespace

absl::Status RunInt8AvgPool(absl::Span<const Call> calls) {
  const Geometry g = GeometryOf(calls[0], calls[0].in_shape(0), calls[0].out_shape(0));
  SumWindows(calls[0], {g.in, g.out, {g.window.kh, g.window.kw, g.window.sh, g.window.sw, 0, 0}},
             g.window.kh * g.window.kw);
  return absl::OkStatus();
}

absl::Status RunInt8AvgPoolGradient(absl::Span<const Call> calls) {
  const Geometry g = GeometryOf(calls[0], calls[0].out_shape(0), calls[0].in_shape(0));
  SpreadWindows(calls[0], g, g.window.kh * g.window.kw);
  return absl::OkStatus();
}

absl::Status RunInt8GlobalAvgPool(absl::Span<const Call> calls) {
  const Geometry g = GlobalGeometry(calls[0].in_shape(0));
  SumWindows(calls[0], g, g.in.positions());
  return absl::OkStatus();
}

absl::Status RunInt8GlobalAvgPoolGradient(absl::Span<const Call> calls) {
  const Geometry g = GlobalGeometry(calls[0].out_shape(0));
  SpreadWindows(calls[0], g, g.in.positions());
  return absl::OkStatus();
}

}  // namespace runnel::cpu
