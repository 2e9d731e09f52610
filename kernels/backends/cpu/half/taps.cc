#include "kernels/backends/cpu/half/taps.h"

#include <algorithm>

namespace runnel::half {

Conv::Conv(const OpSpec& op, const Shape& x_shape, const Shape& y_shape)
    : x(ImageOf(x_shape)), y(ImageOf(y_shape)) {
  if (x_shape.rank() > 2) window = cpu::WindowOf(op, x_shape);
  if (op.kind == OpKind::kConv) groups = op.groups;
}

Walk::Walk(const Conv& conv, bool backward) : conv_(conv), backward_(backward) {
  const Window& window = conv.window;
  const int64_t step_h = backward ? window.sh : 1, step_w = backward ? window.sw : 1;
  for (int64_t h = 0; h < std::min(step_h, target().h); ++h) {
    for (int64_t w = 0; w < std::min(step_w, target().w); ++w) {
      TargetSet& set = sets_.emplace_back();
      set.h = h;
      set.w = w;
      set.step_h = step_h;
      set.step_w = step_w;
      set.rows = (target().h - h + step_h - 1) / step_h;
      set.columns = (target().w - w + step_w - 1) / step_w;
      for (int64_t tap = 0; tap < conv.taps(); ++tap) {
        if ((h + window.ph - tap / window.kw * window.dh) % step_h == 0 &&
            (w + window.pw - tap % window.kw * window.dw) % step_w == 0)
          set.taps.push_back(tap);
      }
    }
  }
}

int64_t Walk::TargetOf(const TargetSet& set, int64_t i) const {
  const int64_t column = i % set.columns, row = i / set.columns % set.rows;
  const int64_t n = i / set.columns / set.rows;
  return (n * target().h + set.h + row * set.step_h) * target().w + set.w + column * set.step_w;
}

int64_t Walk::SourceOf(int64_t n, int64_t h, int64_t w, int64_t tap) const {
  const Window& window = conv_.window;
  const int64_t kh = tap / window.kw * window.dh, kw = tap % window.kw * window.dw;
  // A backward's difference is a multiple of the stride, and so is one below 0.
  const int64_t at_h =
      backward_ ? (h + window.ph - kh) / window.sh : h * window.sh + kh - window.ph;
  const int64_t at_w =
      backward_ ? (w + window.pw - kw) / window.sw : w * window.sw + kw - window.pw;
  if (at_h < 0 || at_h >= source().h || at_w < 0 || at_w >= source().w) return -1;
  return (n * source().h + at_h) * source().w + at_w;
}

void Walk::Gather(const TargetSet& set, int64_t pixel, int64_t channel, int64_t channels,
                  bool pairs, const Conversions& conversions, const uint16_t* x, float* row) const {
  const Image& image = source();
  const int64_t n = pixel / target().positions(), at = pixel % target().positions();
  const int64_t h = at / target().w, w = at % target().w;
  const auto widen = pairs ? conversions.widen_pairs : conversions.widen;
  // Neighbours in the source are widened at once, if no pair has a part in each of them.
  const bool joins = channels == image.c && (!pairs || channels == 1 || channels % 2 == 0);
  const auto widen_run = channels == 1 ? conversions.widen : widen;
  int64_t run = -1, length = 0;
  const auto flush = [&] {
    if (length == 0) return;
    if (run < 0) {
      std::fill_n(row, length * channels, 0.0f);
    } else {
      widen_run(x + run * image.c + channel, length * channels, row);
    }
    row += length * channels;
    length = 0;
  };
  for (const int64_t tap : set.taps) {
    const int64_t source_pixel = SourceOf(n, h, w, tap);
    const bool follows = run < 0 ? source_pixel < 0 : joins && source_pixel == run + length;
    if (length == 0 || !follows) {
      flush();
      run = source_pixel;
    }
    ++length;
  }
  flush();
}

}  // namespace runnel::half
