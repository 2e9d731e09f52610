// Instructions of INT8 inference, as kernels/ir/arithmetic/code_rule.h says.

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/code_rule.h"
#include "kernels/ir/arithmetic/integer_math.h"

namespace runnel::ref {
namespace {

const CodeRule& RuleAt(const Call& call, size_t input) {
  return *reinterpret_cast<const CodeRule*>(call.in<int64_t>(input));
}

int8_t Clamped(const CodeRule& rule, int64_t code) {
  return static_cast<int8_t>(std::clamp(code + rule.zero, rule.lowest, rule.highest));
}

// Products read exponents, whatever they mean.
absl::Status WithoutScale(const Call& call) {
  if (call.out_is_scaled(0)) call.out_tail(0) = {};
  return absl::OkStatus();
}

// (n, c, spatial...) as n images of c x inner.
struct Planes {
  int64_t n, c, inner;
};
Planes PlanesOf(const Shape& shape) {
  return {shape[0], shape[1], shape.elements() / (shape[0] * shape[1])};
}

struct ProductSizes {
  host::Image x, y;
  host::Window window;
  int64_t groups = 1;
};
ProductSizes SizesOf(const Call& call) {
  ProductSizes sizes{host::ImageOf(call.in_shape(0)), host::ImageOf(call.out_shape(0))};
  if (call.in_shape(0).rank() > 2) {
    sizes.window = host::WindowOf(call.attributes(), call.in_shape(0));
    sizes.groups = call.attributes().groups;
  }
  return sizes;
}

// Calls body(input, weight) for each product of output (n, o, position) whose tap lies inside, tap by
// tap; outside(weight) where it does not. Weights lie (out, kernel..., in).
template <typename Body, typename Outside>
void ForEachTap(const ProductSizes& g, int64_t n, int64_t o, int64_t position, const Body& body,
                const Outside& outside) {
  const int64_t ins = g.x.c / g.groups, taps = g.window.kh * g.window.kw;
  const int64_t first = o / (g.y.c / g.groups) * ins;
  for (int64_t tap = 0; tap < taps; ++tap) {
    const int64_t h = position / g.y.w * g.window.sh + tap / g.window.kw - g.window.ph;
    const int64_t w = position % g.y.w * g.window.sw + tap % g.window.kw - g.window.pw;
    const bool inside = h >= 0 && h < g.x.h && w >= 0 && w < g.x.w;
    for (int64_t i = 0; i < ins; ++i) {
      const int64_t weight = (o * taps + tap) * ins + i;
      if (inside) {
        body(((n * g.x.c + first + i) * g.x.h + h) * g.x.w + w, weight);
      } else {
        outside(weight);
      }
    }
  }
}

int32_t Saturated(int64_t sum) {
  return static_cast<int32_t>(std::clamp<int64_t>(sum, -INT32_MAX, INT32_MAX));
}

int64_t Encoded(float real) {
  return std::llround(std::isnan(real) ? -1e6f : std::clamp(real, -1e6f, 1e6f));
}

int8_t Added(const CodeRule& rule, int64_t a, int64_t b) {
  const int64_t sum = (a - rule.zero_a) * rule.factor_a + (b - rule.zero_b) * rule.factor_b;
  return Clamped(rule, RoundHalfAway(sum, static_cast<int>(rule.shift)));
}

}  // namespace

absl::Status EncodeCodes(const Call& call) {
  const CodeRule& rule = RuleAt(call, 1);
  const auto factor = std::bit_cast<float>(static_cast<uint32_t>(rule.factor_a));
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    call.out<int8_t>(0)[i] = Clamped(rule, Encoded(call.in(0)[i] * factor));
  }
  return WithoutScale(call);
}

absl::Status RequantizeCodes(const Call& call) {
  const CodeRule& rule = RuleAt(call, 1);
  const auto* channels = reinterpret_cast<const CodeChannel*>(&rule + 1);
  const Planes y = PlanesOf(call.out_shape(0));
  const bool is_one = call.in_shape(1).elements() == kCodeRuleWords + kCodeChannelWords;
  const bool is_codes = call.in_dtype(0) == DType::kInt8;
  const int64_t groups = call.has_input(2) ? call.in_shape(2)[1] : 1;
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const int64_t plane = i / y.inner, c = plane % y.c, n = plane / y.c;
    const CodeChannel& channel = channels[is_one ? 0 : c];
    int64_t sum = channel.offset + (is_codes ? call.in<int8_t>(0)[i] : call.in<int32_t>(0)[i]);
    if (call.has_input(2)) {
      const int64_t row = (n * groups + c / (y.c / groups)) * y.inner + i % y.inner;
      sum -= channel.weight_zero * call.in<int32_t>(2)[row];
    }
    if (call.out_dtype(0) == DType::kInt32) {
      call.out<int32_t>(0)[i] = Saturated(sum);
    } else {
      const auto shift = static_cast<int>(channel.shift);
      const int64_t scaled = Saturated(sum) * channel.multiplier;
      call.out<int8_t>(0)[i] = Clamped(rule, RoundHalfAway(scaled, shift));
    }
  }
  return WithoutScale(call);
}

absl::Status Int8ProductToCodes(const Call& call) {
  const ProductSizes g = SizesOf(call);
  const CodeRule& rule = RuleAt(call, 2);
  const auto* channels = reinterpret_cast<const CodeChannel*>(&rule + 1);
  const auto *x = call.in<int8_t>(0), *weights = call.in<int8_t>(1);
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const int64_t plane = i / g.y.positions(), c = plane % g.y.c;
    const CodeChannel& channel = channels[c];
    int64_t sum = channel.offset;
    ForEachTap(
        g, plane / g.y.c, c, i % g.y.positions(),
        [&](int64_t in, int64_t w) { sum += x[in] * (weights[w] - channel.weight_zero); },
        [&](int64_t w) { sum += rule.zero_a * (weights[w] - channel.weight_zero); });
    if (call.out_dtype(0) == DType::kInt32) {
      call.out<int32_t>(0)[i] = Saturated(sum);
      continue;
    }
    const int64_t scaled = Saturated(sum) * channel.multiplier;
    const int8_t code = Clamped(rule, RoundHalfAway(scaled, static_cast<int>(channel.shift)));
    call.out<int8_t>(0)[i] = call.has_input(kAddedOperand)
                                 ? Added(RuleAt(call, 4), code, call.in<int8_t>(kAddedOperand)[i])
                                 : code;
  }
  return WithoutScale(call);
}

absl::Status RealProductToCodes(const Call& call) {
  const ProductSizes g = SizesOf(call);
  const CodeRule& rule = RuleAt(call, 3);
  const auto factor = std::bit_cast<float>(static_cast<uint32_t>(rule.factor_a));
  const auto scale = std::bit_cast<double>(rule.factor_b);
  const bool takes_codes = call.in_dtype(0) == DType::kInt8;
  const auto real = [&](int64_t in) {
    if (!takes_codes) return call.in(0)[in];
    return static_cast<float>(static_cast<double>(call.in<int8_t>(0)[in] - rule.zero_a) * scale);
  };
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const int64_t plane = i / g.y.positions(), c = plane % g.y.c;
    float sum = call.in(2)[c];
    ForEachTap(
        g, plane / g.y.c, c, i % g.y.positions(),
        [&](int64_t in, int64_t w) { sum += real(in) * call.in(1)[w]; }, [](int64_t) {});
    if (call.out_dtype(0) == DType::kFloat32) {
      call.out(0)[i] = sum;
    } else {
      call.out<int8_t>(0)[i] = Clamped(rule, Encoded(sum * factor));
    }
  }
  return WithoutScale(call);
}

absl::Status AddCodes(const Call& call) {
  const CodeRule& rule = RuleAt(call, 2);
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    call.out<int8_t>(0)[i] = Added(rule, call.in<int8_t>(0)[i], call.in<int8_t>(1)[i]);
  }
  return WithoutScale(call);
}

absl::Status PadCodes(const Call& call) {
  const Shape &x = call.in_shape(0), &y = call.out_shape(0);
  const int64_t top = (y[2] - x[2]) / 2, left = (y[3] - x[3]) / 2;
  int8_t* to = call.out<int8_t>(0);
  std::fill_n(to, y.elements(), static_cast<int8_t>(RuleAt(call, 1).zero_a));
  for (int64_t row = 0; row < x[0] * x[1] * x[2]; ++row) {
    const int64_t plane = row / x[2], h = row % x[2] + top;
    std::copy_n(call.in<int8_t>(0) + row * x[3], x[3], to + (plane * y[2] + h) * y[3] + left);
  }
  return WithoutScale(call);
}

absl::Status CodesToChannelsFirst(const Call& call) {
  const Planes y = PlanesOf(call.out_shape(0));
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const int64_t p = i % y.inner, c = i / y.inner % y.c, n = i / (y.inner * y.c);
    call.out<int8_t>(0)[i] = call.in<int8_t>(0)[(n * y.inner + p) * y.c + c];
  }
  return WithoutScale(call);
}

absl::Status CodesToChannelsLast(const Call& call) {
  const Planes x = PlanesOf(call.in_shape(0));
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) {
    const int64_t p = i % x.inner, c = i / x.inner % x.c, n = i / (x.inner * x.c);
    call.out<int8_t>(0)[(n * x.inner + p) * x.c + c] = call.in<int8_t>(0)[i];
  }
  return WithoutScale(call);
}

}  // namespace runnel::ref
