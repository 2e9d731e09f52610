// The primitives of backend small against sums that are rounded from exact values, bit for bit: every
// kernel, every row of table 4, depthwise convolutions.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/backends/small/primitives/depthwise.h"
#include "kernels/backends/small/primitives/layers.h"
#include "tests/kernels/small/exact_model.h"
#include "tests/support/case_count.h"

namespace runnel::small::primitives_test {
namespace {

const auto kShapes = static_cast<int>(CaseCount(200));

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int32_t Within(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  // Rounded to multiples of 2^-20, some of them 0, some small: every bit of a sum is needed.
  template <class T>
  T Value() {
    const int32_t scale = Within(0, 9);
    if (scale == 9) return T{};
    const double value =
        static_cast<double>(static_cast<int64_t>(engine_() % 4097) - 2048) * 0x1p-11;
    return Make<T>(static_cast<float>(std::ldexp(value, -scale)));
  }
  template <class T>
  std::vector<T> Values(int32_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    for (T& value : values) value = Value<T>();
    return values;
  }

 private:
  template <class T>
  static T Make(float value) {
    if constexpr (std::is_same_v<T, float>) {
      return value * 1.0009765f;  // more digits
    } else {
      return Rounded<T>(value);
    }
  }
  std::mt19937_64 engine_;
};

template <class T>
bool SameBits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class Rule>
class PrimitivesTest : public testing::Test {};
using Rules =
    testing::Types<Float32Rule, WideRule<F16>, WideRule<Bf16>, NarrowRule<F16>, NarrowRule<Bf16>>;
TYPED_TEST_SUITE(PrimitivesTest, Rules);

template <class Rule>
bool HasLanes(const MatrixKernel<Rule>& kernel, bool transposed, int32_t column, int32_t columns) {
  return kernel.lanes == 2 && transposed && column < columns / kernel.columns * kernel.columns;
}

// A product of random operands by `kernel`, on `cores` cores one after the other.
template <class Rule>
void ExpectProduct(const MatrixKernel<Rule>& kernel, bool transposed, Start start, int cores,
                   Random& random) {
  const int32_t n = random.Within(1, 19), m = random.Within(1, 19);
  const int32_t k = random.Within(0, 3) == 0 ? random.Within(4, 40) : random.Within(1, 3);
  SCOPED_TRACE(absl::StrCat(kernel.name, transposed ? " transposed " : " ", n, " x ", k, " x ", m,
                            ", start ", static_cast<int>(start)));
  const auto a = random.Values<typename Rule::Element>(n * k);
  const auto b = random.Values<typename Rule::Element>(k * m);
  const auto before = random.Values<typename Rule::Sum>(n * m);
  auto c = before;
  const bool by_columns = kernel.name[0] == 'm';
  for (int core = 0; core < cores; ++core) {
    MatrixCall<Rule> call = {a.data(), b.data(), c.data(), n, k, m, start};
    TakeCore(by_columns ? m : n, by_columns ? kernel.columns : kernel.rows, core, cores,
             &call.first, &call.last);
    (transposed ? kernel.mm_t : kernel.mm)(call);
  }
  for (int32_t i = 0; i < n; ++i) {
    for (int32_t j = 0; j < m; ++j) {
      std::vector<Term<Rule>> terms;
      for (int32_t t = 0; t < k; ++t)
        terms.push_back({a[i * k + t], transposed ? b[j * k + t] : b[t * m + j]});
      const auto first = start == Start::kContinue ? before[i * m + j] : typename Rule::Sum{};
      auto want = SumOf<Rule>(terms, first, HasLanes(kernel, transposed, j, m));
      if (start == Start::kAdd) want = Model<Rule>::Join(before[i * m + j], want);
      ASSERT_TRUE(SameBits(c[i * m + j], want))
          << i << ", " << j << ": " << ValueOf(c[i * m + j]) << ", model " << ValueOf(want);
    }
  }
}

TYPED_TEST(PrimitivesTest, EveryKernelHasTheBitsOfExactSums) {
  const MatrixKernels<TypeParam> kernels = KernelsOf<TypeParam>();
  for (int i = 0; i < kernels.count; ++i) {
    const MatrixKernel<TypeParam>& kernel = kernels.rows[i];
    Random random(static_cast<uint64_t>(i) + 1);
    for (int shape = 0; shape < kShapes; ++shape) {
      const bool transposed = shape % 2 == 1;
      auto start = static_cast<Start>(shape / 2 % 3);
      if (kernel.lanes == 2 && start == Start::kContinue) start = Start::kZero;
      ExpectProduct(kernel, transposed, start, 1 + shape % 3, random);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// A convolution with its tensors in (c, h, w) and (o, c, i, j).
template <class Rule>
struct Layer {
  Conv conv;
  std::vector<typename Rule::Element> x, w, dy;

  auto X(int32_t c, int32_t h, int32_t wide) const {
    const bool is_in = h >= 0 && h < conv.in.h && wide >= 0 && wide < conv.in.w;
    return is_in ? x[(c * conv.in.h + h) * conv.in.w + wide] : typename Rule::Element{};
  }
  auto W(int32_t o, int32_t c, int32_t tap) const {
    return w[(o * conv.in.c + c) * conv.taps() + tap];
  }
  auto Dy(int32_t o, int32_t h, int32_t wide) const {
    const bool is_in = h >= 0 && h < conv.out.h && wide >= 0 && wide < conv.out.w;
    return is_in ? dy[(o * conv.out.h + h) * conv.out.w + wide] : typename Rule::Element{};
  }
};

template <class Rule>
Layer<Rule> MakeLayer(bool pointwise, Random& random) {
  Layer<Rule> layer;
  Conv& c = layer.conv;
  c.in = {random.Within(1, 5), random.Within(1, 7), random.Within(1, 7)};
  if (!pointwise) {
    c.kh = random.Within(1, 3);
    c.kw = random.Within(1, 4);
    c.stride_h = random.Within(1, 3);
    c.stride_w = random.Within(1, 2);
    c.pad_h = random.Within(0, 2);
    c.pad_w = random.Within(0, 3);
    c.in.h = std::max(c.in.h, c.kh);
    c.in.w = std::max(c.in.w, c.kw);
  }
  c.out.c = random.Within(1, 6);
  c.out.h = (c.in.h + 2 * c.pad_h - c.kh) / c.stride_h + 1;
  c.out.w = (c.in.w + 2 * c.pad_w - c.kw) / c.stride_w + 1;
  layer.x = random.Values<typename Rule::Element>(c.in.elements());
  layer.w = random.Values<typename Rule::Element>(c.out.c * c.in.c * c.taps());
  layer.dy = random.Values<typename Rule::Element>(c.out.elements());
  return layer;
}

// Position of (c, at) of a plane.
int32_t PlaceIn(const Plane& plane, Layout layout, int32_t c, int32_t at) {
  return layout == Layout::kChw ? c * plane.positions() + at : at * plane.c + c;
}
int32_t TermOf(const Conv& conv, int32_t c, int32_t tap, int32_t channels) {
  return conv.order == TermOrder::kTapsFirst ? tap * channels + c : c * conv.taps() + tap;
}

template <class Element>
std::vector<Element> LaidOut(const Plane& plane, Layout layout, const std::vector<Element>& from) {
  std::vector<Element> to(from.size());
  for (int32_t c = 0; c < plane.c; ++c) {
    for (int32_t at = 0; at < plane.positions(); ++at)
      to[PlaceIn(plane, layout, c, at)] = from[c * plane.positions() + at];
  }
  return to;
}

// Where (o, c, tap) lies in W and dW.
int32_t WeightPlace(const Conv& conv, const LayerRow& row, int32_t o, int32_t c, int32_t tap) {
  const int32_t terms = conv.taps() * conv.in.c, term = TermOf(conv, c, tap, conv.in.c);
  const bool outs_inside = row.layout == Layout::kHwc && !row.transposed;
  return outs_inside ? term * conv.out.c + o : o * terms + term;
}

// The terms of one element of the result, each in its place.
template <class Rule>
std::vector<Term<Rule>> ForwardTerms(const Layer<Rule>& layer, int32_t o, int32_t at) {
  const Conv& c = layer.conv;
  std::vector<Term<Rule>> terms(static_cast<size_t>(c.taps() * c.in.c));
  for (int32_t tap = 0; tap < c.taps(); ++tap) {
    const int32_t h = at / c.out.w * c.stride_h + tap / c.kw - c.pad_h;
    const int32_t w = at % c.out.w * c.stride_w + tap % c.kw - c.pad_w;
    for (int32_t i = 0; i < c.in.c; ++i)
      terms[TermOf(c, i, tap, c.in.c)] = {layer.X(i, h, w), layer.W(o, i, tap)};
  }
  return terms;
}
template <class Rule>
std::vector<Term<Rule>> InputTerms(const Layer<Rule>& layer, int32_t i, int32_t at) {
  const Conv& c = layer.conv;
  std::vector<Term<Rule>> terms(static_cast<size_t>(c.taps() * c.out.c));
  for (int32_t tap = 0; tap < c.taps(); ++tap) {
    const int32_t h = at / c.in.w + c.pad_h - tap / c.kw, w = at % c.in.w + c.pad_w - tap % c.kw;
    const bool is_between = h % c.stride_h != 0 || w % c.stride_w != 0;
    const int32_t place = c.keeps_taps ? tap : c.taps() - 1 - tap;
    for (int32_t o = 0; o < c.out.c; ++o) {
      const auto dy = is_between
                          ? typename Rule::Element{}
                          : layer.Dy(o, h < 0 ? -1 : h / c.stride_h, w < 0 ? -1 : w / c.stride_w);
      terms[TermOf(c, o, place, c.out.c)] = {dy, layer.W(o, i, tap)};
    }
  }
  return terms;
}
template <class Rule>
std::vector<Term<Rule>> WeightTerms(const Layer<Rule>& layer, int32_t o, int32_t i, int32_t tap) {
  const Conv& c = layer.conv;
  std::vector<Term<Rule>> terms;
  for (int32_t h = 0; h < c.out.h; ++h) {
    for (int32_t w = 0; w < c.out.w; ++w) {
      terms.push_back({layer.Dy(o, h, w), layer.X(i, h * c.stride_h + tap / c.kw - c.pad_h,
                                                  w * c.stride_w + tap % c.kw - c.pad_w)});
    }
  }
  return terms;
}

template <class Rule>
std::vector<typename Rule::Sum> Run(const Layer<Rule>& layer, const LayerRow& row,
                                    const MatrixKernel<Rule>& kernel) {
  const Conv& conv = layer.conv;
  const auto x = LaidOut(conv.in, row.layout, layer.x);
  const auto dy = LaidOut(conv.out, row.layout, layer.dy);
  std::vector<typename Rule::Element> w(layer.w.size());
  for (int32_t o = 0; o < conv.out.c; ++o) {
    for (int32_t i = 0; i < conv.in.c; ++i) {
      for (int32_t tap = 0; tap < conv.taps(); ++tap)
        w[WeightPlace(conv, row, o, i, tap)] = layer.W(o, i, tap);
    }
  }
  const ProductSize size = SizeOf(conv, row);
  const TransformSize transforms = TransformsOf(conv, row);
  std::vector<typename Rule::Element> scratch(static_cast<size_t>(transforms.a + transforms.b));
  std::vector<typename Rule::Sum> result(static_cast<size_t>(size.n * size.m));
  RunLayer<Rule>(
      {conv, &row, &kernel, x.data(), w.data(), dy.data(), result.data(), scratch.data()});
  return result;
}

template <class Rule>
void ExpectLayer(const Layer<Rule>& layer, const LayerRow& row, const MatrixKernel<Rule>& kernel) {
  const Conv& c = layer.conv;
  const auto got = Run(layer, row, kernel);
  const int32_t columns = SizeOf(c, row).m;
  const auto expect = [&](const std::vector<Term<Rule>>& terms, int32_t place) {
    const auto want =
        SumOf<Rule>(terms, {}, HasLanes(kernel, row.transposed, place % columns, columns));
    ASSERT_TRUE(SameBits(got[place], want)) << kernel.name << " place " << place << ": "
                                            << ValueOf(got[place]) << ", model " << ValueOf(want);
  };
  if (row.step == Step::kForward) {
    for (int32_t o = 0; o < c.out.c; ++o) {
      for (int32_t at = 0; at < c.out.positions(); ++at)
        expect(ForwardTerms(layer, o, at), PlaceIn(c.out, row.layout, o, at));
    }
  } else if (row.step == Step::kInputGradient) {
    for (int32_t i = 0; i < c.in.c; ++i) {
      for (int32_t at = 0; at < c.in.positions(); ++at)
        expect(InputTerms(layer, i, at), PlaceIn(c.in, row.layout, i, at));
    }
  } else {
    for (int32_t o = 0; o < c.out.c; ++o) {
      for (int32_t i = 0; i < c.in.c; ++i) {
        for (int32_t tap = 0; tap < c.taps(); ++tap)
          expect(WeightTerms(layer, o, i, tap), WeightPlace(c, row, o, i, tap));
      }
    }
  }
}

// Layout, step, MM or MM_T, convolution or pointwise: 24 rows.
TYPED_TEST(PrimitivesTest, EveryRowOfTable4HasTheBitsOfExactSums) {
  const MatrixKernels<TypeParam> kernels = KernelsOf<TypeParam>();
  for (int index = 0; index < 24; ++index) {
    const LayerRow& row = RowOf(index % 2 == 0 ? Layout::kHwc : Layout::kChw,
                                static_cast<Step>(index / 2 % 3), index / 6 % 2 == 1, index >= 12);
    Random random(static_cast<uint64_t>(index) + 77);
    for (int shape = 0; shape < kShapes; ++shape) {
      Layer<TypeParam> layer = MakeLayer<TypeParam>(row.pointwise, random);
      layer.conv.order =
          row.layout == Layout::kHwc ? TermOrder::kTapsFirst : static_cast<TermOrder>(shape % 2);
      layer.conv.keeps_taps = shape % 3 == 0 && row.step == Step::kInputGradient;
      SCOPED_TRACE(absl::StrCat("row ", index, ", shape ", shape, ", kernel ",
                                kernels.rows[shape % kernels.count].name));
      ExpectLayer(layer, row, kernels.rows[shape % kernels.count]);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(PrimitivesTest, DepthwiseHasTheBitsOfExactSums) {
  using Rule = TypeParam;
  Random random(5);
  for (int shape = 0; shape < kShapes; ++shape) {
    Layer<Rule> layer = MakeLayer<Rule>(false, random);
    Conv& c = layer.conv;
    c.in.c = c.out.c = 1;
    c.keeps_taps = shape % 2 == 1;
    for (const Step step : {Step::kForward, Step::kWeightGradient, Step::kInputGradient}) {
      const int32_t count = step == Step::kForward         ? c.out.positions()
                            : step == Step::kInputGradient ? c.in.positions()
                                                           : c.taps();
      const auto before = random.Values<typename Rule::Sum>(count);
      for (const bool unrolled : {false, true}) {
        auto got = before;
        RunDepthwise<Rule>(step, {c, layer.x.data(), layer.w.data(), layer.dy.data(), got.data(),
                                  Start::kContinue, unrolled});
        for (int32_t at = 0; at < count; ++at) {
          // Terms that are 0 change no sum.
          const auto terms = step == Step::kForward         ? ForwardTerms(layer, 0, at)
                             : step == Step::kInputGradient ? InputTerms(layer, 0, at)
                                                            : WeightTerms(layer, 0, 0, at);
          const auto want = SumOf<Rule>(terms, before[at], false);
          ASSERT_EQ(ValueOf(got[at]), ValueOf(want)) << "shape " << shape << ", place " << at;
        }
      }
    }
  }
}

// Every pair of codes' neighbours: halves are rounded as their format says.
TEST(Numbers, HalvesAreRoundedOnce) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const F16 half = {static_cast<uint16_t>(code)};
    const Bf16 brain = {static_cast<uint16_t>(code)};
    if (ValueOf(half) == ValueOf(half)) {
      EXPECT_EQ(Rounded<F16>(ValueOf(half)).code, code);
    }
    if (ValueOf(brain) == ValueOf(brain)) {
      EXPECT_EQ(Rounded<Bf16>(ValueOf(brain)).code, code);
    }
  }
  EXPECT_EQ(Rounded<F16>(65519.99).code, 0x7BFF);
  EXPECT_EQ(Rounded<F16>(65520).code, 0x7C00);
  EXPECT_EQ(Rounded<F16>(0x1p-25).code, 0);
  EXPECT_EQ(Rounded<F16>(0x1.00001p-25).code, 1);
  EXPECT_EQ(Rounded<F16>(-0x1.8p-24).code, 0x8002);
}

}  // namespace
}  // namespace runnel::small::primitives_test
