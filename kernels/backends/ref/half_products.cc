// Products of halves: kernels/ir/arithmetic/half_products.h says the order of the terms.

#include "kernels/ir/arithmetic/half_products.h"

#include <algorithm>
#include <vector>

#include "kernels/backends/host/widened_call.h"
#include "kernels/backends/ref/ref_kernels.h"

namespace runnel::ref {
namespace {

using host::Image;

// A convolution; a linear layer is one of a single position.
struct HalfConv {
  Image x, y;
  host::Window window;
  int64_t group_in, group_out;

  HalfConv(const OpSpec& op, const Shape& x_shape, const Shape& y_shape)
      : x(host::ImageOf(x_shape)), y(host::ImageOf(y_shape)) {
    if (x_shape.rank() > 2) window = host::WindowOf(op, x_shape);
    const int64_t groups = op.kind == OpKind::kConv ? op.groups : 1;
    group_in = x.c / groups;
    group_out = y.c / groups;
  }

  int64_t taps() const { return window.kh * window.kw; }
  // The pixel of x that the tap of y's pixel (n, h, w) meets; -1: padding.
  int64_t Source(int64_t n, int64_t h, int64_t w, int64_t tap) const {
    const int64_t at_h = h * window.sh + tap / window.kw * window.dh - window.ph;
    const int64_t at_w = w * window.sw + tap % window.kw * window.dw - window.pw;
    if (at_h < 0 || at_h >= x.h || at_w < 0 || at_w >= x.w) return -1;
    return (n * x.h + at_h) * x.w + at_w;
  }
  static constexpr int64_t kNoTerm = -2;
  // The pixel of y whose tap meets x's pixel; -1: beyond y; kNoTerm: between two of y's pixels.
  int64_t Target(int64_t n, int64_t h, int64_t w, int64_t tap) const {
    const int64_t at_h = h + window.ph - tap / window.kw * window.dh;
    const int64_t at_w = w + window.pw - tap % window.kw * window.dw;
    if (at_h % window.sh != 0 || at_w % window.sw != 0) return kNoTerm;
    const int64_t oh = at_h / window.sh, ow = at_w / window.sw;
    if (at_h < 0 || oh >= y.h || at_w < 0 || ow >= y.w) return -1;
    return (n * y.h + oh) * y.w + ow;
  }
};

// Pixels of channels, widened, with a pixel of zeros behind the last.
class Pixels {
 public:
  Pixels(const Call& call, size_t input, const Image& image)
      : image_(image), values_(static_cast<size_t>((image.rows() + 1) * image.c)) {
    const std::vector<float> from = host::WidenedInput(call, input);
    for (int64_t i = 0; i < image.rows() * image.c; ++i) {
      const int64_t position = i % image.positions();
      const int64_t channel = i / image.positions() % image.c;
      const int64_t n = i / image.positions() / image.c;
      values_[(n * image.positions() + position) * image.c + channel] = from[i];
    }
  }
  // `count` channels; pixel -1 is zeros.
  absl::Span<const float> At(int64_t pixel, int64_t channel, int64_t count) const {
    const int64_t at = pixel < 0 ? image_.rows() : pixel;
    return absl::MakeConstSpan(values_).subspan(at * image_.c + channel, count);
  }

 private:
  const Image image_;
  std::vector<float> values_;
};

// Writes a (n, c, position) tensor of halves from sums.
template <typename SumOf>
void StoreSums(const Call& call, const Image& image, const SumOf& sum_of) {
  std::vector<float> sums(static_cast<size_t>(image.rows() * image.c));
  const FlushSubnormals flush;
  for (int64_t n = 0; n < image.n; ++n) {
    for (int64_t p = 0; p < image.positions(); ++p) {
      for (int64_t c = 0; c < image.c; ++c)
        sums[(n * image.c + c) * image.positions() + p] = sum_of(n, p, c) + 0.0f;
    }
  }
  host::StoreHalves(call, call.instruction().outputs[0], sums);
}

std::vector<float> RoundedWeights(const Call& call) {
  std::vector<float> weights(call.in(1), call.in(1) + call.in_shape(1).elements());
  RoundToHalf(call.in_dtype(0), absl::MakeSpan(weights));
  return weights;
}

}  // namespace

absl::Status HalfForward(const Call& call) {
  const HalfConv s(call.attributes(), call.in_shape(0), call.out_shape(0));
  const Pixels x(call, 0, s.x);
  const std::vector<float> weights = RoundedWeights(call);
  std::vector<float> of_tap(static_cast<size_t>(s.group_in));
  StoreSums(call, s.y, [&](int64_t n, int64_t p, int64_t o) {
    float sum = call.has_input(2) ? call.in(2)[o] : 0.0f;
    for (int64_t tap = 0; tap < s.taps(); ++tap) {
      for (int64_t i = 0; i < s.group_in; ++i)
        of_tap[i] = weights[(o * s.group_in + i) * s.taps() + tap];
      const int64_t pixel = s.Source(n, p / s.y.w, p % s.y.w, tap);
      sum = AddPairs(x.At(pixel, o / s.group_out * s.group_in, s.group_in), of_tap, sum);
    }
    return sum;
  });
  return absl::OkStatus();
}

absl::Status HalfInputGradient(const Call& call) {
  const HalfConv s(call.attributes(), call.out_shape(0), call.in_shape(0));
  const Pixels dy(call, 0, s.y);
  const std::vector<float> weights = RoundedWeights(call);
  std::vector<float> of_tap(static_cast<size_t>(s.group_out));
  StoreSums(call, s.x, [&](int64_t n, int64_t p, int64_t i) {
    const int64_t first = i / s.group_in * s.group_out;
    float sum = 0;
    for (int64_t tap = 0; tap < s.taps(); ++tap) {
      const int64_t pixel = s.Target(n, p / s.x.w, p % s.x.w, tap);
      if (pixel == HalfConv::kNoTerm) continue;
      for (int64_t o = 0; o < s.group_out; ++o)
        of_tap[o] = weights[((first + o) * s.group_in + i % s.group_in) * s.taps() + tap];
      sum = AddPairs(dy.At(pixel, first, s.group_out), of_tap, sum);
    }
    return sum;
  });
  return absl::OkStatus();
}

absl::Status HalfWeightGradient(const Call& call) {
  const HalfConv s(call.attributes(), call.in_shape(1), call.in_shape(0));
  const Pixels dy(call, 0, s.y), x(call, 1, s.x);
  const int64_t rows = s.y.rows();
  std::vector<float> left(static_cast<size_t>(rows)), right(left.size());
  for (int64_t o = 0; o < s.y.c; ++o) {
    double bias = 0;
    for (int64_t r = 0; r < rows; ++r) bias += left[r] = dy.At(r, o, 1)[0];
    if (call.has_output(1)) StoreGradient(call, static_cast<float>(bias), call.out(1) + o);
    const FlushSubnormals flush;
    for (int64_t at = 0; at < s.group_in * s.taps(); ++at) {
      const int64_t channel = o / s.group_out * s.group_in + at / s.taps();
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t p = r % s.y.positions();
        const int64_t pixel = s.Source(r / s.y.positions(), p / s.y.w, p % s.y.w, at % s.taps());
        right[r] = x.At(pixel, channel, 1)[0];
      }
      float sum = 0;
      for (int64_t r = 0; r < rows; r += kHalfPixels) {
        const auto count = static_cast<size_t>(std::min(kHalfPixels, rows - r));
        sum += AddPairs(absl::MakeConstSpan(left).subspan(r, count),
                        absl::MakeConstSpan(right).subspan(r, count), 0.0f);
      }
      StoreGradient(call, sum, call.out(0) + o * s.group_in * s.taps() + at);
    }
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
