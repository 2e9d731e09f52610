#include "kernels/backends/small/group_product.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "kernels/backends/small/primitives/depthwise.h"
#include "kernels/backends/small/views.h"

namespace runnel::small {
namespace {

template <class Rule>
const MatrixKernel<Rule>* FindKernel(absl::string_view name) {
  const MatrixKernels<Rule> kernels = KernelsOf<Rule>();
  for (int i = 0; i < kernels.count; ++i) {
    if (kernels.rows[i].name == name && kernels.rows[i].lanes == 1) return &kernels.rows[i];
  }
  return nullptr;
}

// Takes parts of L1, one behind the other.
class NearParts {
 public:
  explicit NearParts(NearMemory l1) : next_(l1.data) {}
  template <class T>
  T* Take(int64_t bytes) {
    T* part = reinterpret_cast<T*>(next_);
    next_ += (bytes + 15) / 16 * 16;
    return part;
  }

 private:
  std::byte* next_;
};

// One group of a product. `read` is what windows slide over, `walked` the other tensor of values.
template <class Rule>
class GroupProduct {
 public:
  using T = typename Rule::Element;
  using Sum = typename Rule::Sum;

  GroupProduct(const host::Call& call, const ProductShape& shape, const ProductChoice& choice,
               const MatrixKernel<Rule>& kernel, int32_t group, NearMemory l1)
      : call_(call),
        shape_(shape),
        tile_(choice.tile),
        layout_(choice.way.layout),
        row_(RowOf(layout_, shape.step, choice.way.transposed, shape.conv.is_pointwise())),
        kernel_(kernel),
        outs_inside_(layout_ == Layout::kHwc && !choice.way.transposed),
        group_(group),
        l1_(l1) {
    const TileBytes bytes = BytesOf(shape, choice.way, tile_);
    NearParts parts(l1);
    image_ = parts.template Take<T>(bytes.image);
    other_ = parts.template Take<T>(bytes.other);
    scratch_ = parts.template Take<T>(bytes.transforms);
    sums_ = parts.template Take<Sum>(bytes.sums);
  }

  void Slide();
  void SlideDepthwise();
  void Gradient();
  void GradientDepthwise();
  void HalfGradient();
  void BiasGradient();
  const RangeCounts& counts() const { return counts_; }

 private:
  struct Part {  // of the terms: taps [t0, t1) at (i, j), channels [c0, c1) of the source
    int32_t t0, t1, i, j, kh, kw, c0, c1;
  };

  bool is_input() const { return shape_.step == Step::kInputGradient; }
  template <class U>
  View<U> ViewOf(U* data, const Plane& plane) const {
    if (shape_.is_linear) return {data, 0, 1, 0, plane.c};
    const int64_t channels = int64_t{plane.c} * shape_.groups;
    return {data + int64_t{group_} * plane.c * plane.positions(), channels * plane.positions(),
            plane.positions(), plane.w, 1};
  }
  Filters FiltersOf(float* data) const {
    const Conv& c = shape_.conv;
    return {data + int64_t{group_} * c.out.c * c.in.c * c.taps(), c.out.c, c.in.c, c.taps()};
  }
  Box Rows(int64_t sample, int32_t c0, int32_t c1, int32_t h0, int32_t h1, int32_t w0,
           int32_t w1) const {
    return {sample, c0, c1, h0, h1, w0, w1, 0, false};
  }
  AxisTile AxisH(int32_t begin, int32_t end, int32_t kernel, int32_t tap) const {
    const Conv& c = shape_.conv;
    return is_input() ? BackwardAxis(begin, end, c.stride_h, kernel, c.pad_h - tap, c.out.h)
                      : ForwardAxis(begin, end, c.stride_h, kernel, c.pad_h - tap, c.in.h);
  }
  AxisTile AxisW(int32_t begin, int32_t end, int32_t kernel, int32_t tap) const {
    const Conv& c = shape_.conv;
    return is_input() ? BackwardAxis(begin, end, c.stride_w, kernel, c.pad_w - tap, c.out.w)
                      : ForwardAxis(begin, end, c.stride_w, kernel, c.pad_w - tap, c.in.w);
  }
  // Calls body for the parts of the terms in their order.
  template <class Body>
  void ForParts(const Body& body) const;
  void SlideTile(const Box& walked);
  void AddPart(const Box& walked, const Part& part);
  void LoadWeights(const Box& walked, const Part& part);
  void AddPositions(const Box& filters, const Box& walked);
  void HalfBlock(const FilterBox& filters, int64_t first, int32_t count);
  Box WindowsOf(const Box& walked, int32_t c0, int32_t c1, Conv* tile) const;
  Sum FirstSum(int32_t channel) const {
    Sum first = {};
    if (shape_.step == Step::kForward && call_.has_input(2))
      Hold(call_.in(2)[int64_t{group_} * shape_.conv.out.c + channel], &first);
    return first;
  }
  void StoreFilters(const FilterBox& box, bool outs_inside);

  const host::Call& call_;
  const ProductShape& shape_;
  const TileSize& tile_;
  const Layout layout_;
  const LayerRow& row_;
  const MatrixKernel<Rule>& kernel_;
  const bool outs_inside_;
  const int32_t group_;
  const NearMemory l1_;
  T *image_, *other_, *scratch_;
  Sum* sums_;
  std::optional<std::tuple<int32_t, int32_t, int32_t>> loaded_;  // weights that lie in L1
  RangeCounts counts_;
};

template <class Rule>
template <class Body>
void GroupProduct<Rule>::ForParts(const Body& body) const {
  const Conv& c = shape_.conv;
  const int32_t channels = shape_.source().c;
  if (tile_.chunk == 0) {
    body(Part{0, c.taps(), 0, 0, c.kh, c.kw, 0, channels});
    return;
  }
  for (int32_t t = 0; t < c.taps(); ++t) {
    // Windows over dY meet the last tap first.
    const int32_t tap = is_input() && !c.keeps_taps ? c.taps() - 1 - t : t;
    for (int32_t c0 = 0; c0 < channels; c0 += tile_.chunk)
      body(Part{tap, tap + 1, tap / c.kw, tap % c.kw, 1, 1, c0,
                std::min(c0 + tile_.chunk, channels)});
  }
}

// Forward and input-gradient: the positions of the result in tiles.
template <class Rule>
void GroupProduct<Rule>::Slide() {
  const Plane& result = shape_.positions();
  for (int32_t c0 = 0; c0 < result.c; c0 += tile_.outs) {
    const int32_t c1 = std::min(c0 + tile_.outs, result.c);
    for (int32_t n = 0; n < shape_.batch; ++n) {
      for (int32_t h = 0; h < result.h; h += tile_.rows) {
        for (int32_t w = 0; w < result.w; w += tile_.columns)
          SlideTile(Rows(n, c0, c1, h, std::min(h + tile_.rows, result.h), w,
                         std::min(w + tile_.columns, result.w)));
      }
    }
  }
}

template <class Rule>
void GroupProduct<Rule>::SlideTile(const Box& walked) {
  const Plane plane = walked.plane();
  for (int32_t c = 0; c < plane.c; ++c) {
    const Sum first = FirstSum(walked.c0 + c);
    for (int32_t at = 0; at < plane.positions(); ++at)
      sums_[layout_ == Layout::kChw ? c * plane.positions() + at : at * plane.c + c] = first;
  }
  ForParts([&](const Part& part) { AddPart(walked, part); });
  CopyOut(sums_, walked, layout_, ViewOf(call_.out<T>(0), shape_.positions()), &counts_);
}

template <class Rule>
void GroupProduct<Rule>::AddPart(const Box& walked, const Part& part) {
  const AxisTile h = AxisH(walked.h0, walked.h1, part.kh, part.i);
  const AxisTile w = AxisW(walked.w0, walked.w1, part.kw, part.j);
  Box read =
      Rows(walked.sample, part.c0, part.c1, h.first, h.first + h.count, w.first, w.first + w.count);
  read.channels_of = shape_.source().c;
  read.in_pairs = shape_.in_pairs();
  CopyIn(ViewOf(call_.in<T>(0), shape_.source()), read, layout_, image_);
  LoadWeights(walked, part);
  LayerCall<Rule> layer;
  layer.conv = shape_.conv;
  layer.conv.kh = part.kh;
  layer.conv.kw = part.kw;
  layer.conv.in = is_input() ? walked.plane() : read.plane();
  layer.conv.out = is_input() ? read.plane() : walked.plane();
  layer.conv.pad_h = h.pad;
  layer.conv.pad_w = w.pad;
  layer.row = &row_;
  layer.kernel = &kernel_;
  (is_input() ? layer.dy : layer.x) = image_;
  layer.w = other_;
  layer.result = sums_;
  layer.scratch = scratch_;
  layer.start = Start::kContinue;
  RunLayer(layer);
}

template <class Rule>
void GroupProduct<Rule>::LoadWeights(const Box& walked, const Part& part) {
  const std::tuple<int32_t, int32_t, int32_t> wanted = {walked.c0, part.t0, part.c0};
  if (loaded_ == wanted) return;
  loaded_ = wanted;
  FilterBox box = {walked.c0, walked.c1, part.c0, part.c1,
                   part.t0,   part.t1,   false,   shape_.in_pairs()};
  if (is_input())
    box = {part.c0, part.c1, walked.c0, walked.c1, part.t0, part.t1, shape_.in_pairs(), false};
  CopyFilters(FiltersOf(const_cast<float*>(call_.in(1))), box, outs_inside_, other_);
}

// The part of X that positions of Y read.
template <class Rule>
Box GroupProduct<Rule>::WindowsOf(const Box& walked, int32_t c0, int32_t c1, Conv* tile) const {
  const AxisTile h = AxisH(walked.h0, walked.h1, shape_.conv.kh, 0);
  const AxisTile w = AxisW(walked.w0, walked.w1, shape_.conv.kw, 0);
  const Box read =
      Rows(walked.sample, c0, c1, h.first, h.first + h.count, w.first, w.first + w.count);
  *tile = shape_.conv;
  tile->in = read.plane();
  tile->out = walked.plane();
  tile->pad_h = h.pad;
  tile->pad_w = w.pad;
  return read;
}

// Weight-gradient: filters in tiles, each summed over all positions.
template <class Rule>
void GroupProduct<Rule>::Gradient() {
  const Conv& c = shape_.conv;
  const int32_t chunk = tile_.chunk > 0 ? tile_.chunk : c.in.c;
  for (int32_t o = 0; o < c.out.c; o += tile_.outs) {
    for (int32_t i = 0; i < c.in.c; i += chunk) {
      const FilterBox box = {
          o, std::min(o + tile_.outs, c.out.c), i, std::min(i + chunk, c.in.c), 0, c.taps()};
      std::fill_n(sums_, box.outs() * box.terms(), Sum{});
      const Box filters = Rows(0, box.i0, box.i1, 0, 0, 0, 0);
      for (int32_t n = 0; n < shape_.batch; ++n) {
        for (int32_t h = 0; h < c.out.h; h += tile_.rows) {
          for (int32_t w = 0; w < c.out.w; w += tile_.columns)
            AddPositions(filters, Rows(n, box.o0, box.o1, h, std::min(h + tile_.rows, c.out.h), w,
                                       std::min(w + tile_.columns, c.out.w)));
        }
      }
      StoreFilters(box, outs_inside_);
    }
  }
}

template <class Rule>
void GroupProduct<Rule>::AddPositions(const Box& filters, const Box& walked) {
  LayerCall<Rule> layer;
  const Box read = WindowsOf(walked, filters.c0, filters.c1, &layer.conv);
  CopyIn(ViewOf(call_.in<T>(1), shape_.conv.in), read, layout_, image_);
  CopyIn(ViewOf(call_.in<T>(0), shape_.conv.out), walked, layout_, other_);
  layer.row = &row_;
  layer.kernel = &kernel_;
  layer.x = image_;
  layer.dy = other_;
  layer.result = sums_;
  layer.scratch = scratch_;
  layer.start = Start::kContinue;
  RunLayer(layer);
}

template <class Rule>
void GroupProduct<Rule>::StoreFilters(const FilterBox& box, bool outs_inside) {
  const Filters to = FiltersOf(call_.out(0));
  const int32_t channels = box.i1 - box.i0;
  for (int32_t o = box.o0; o < box.o1; ++o) {
    for (int32_t i = box.i0; i < box.i1; ++i) {
      for (int32_t tap = 0; tap < to.taps; ++tap) {
        const int32_t term = tap * channels + i - box.i0;
        const int32_t from =
            outs_inside ? term * box.outs() + o - box.o0 : (o - box.o0) * box.terms() + term;
        float sum = ValueOf(sums_[from]);
        if constexpr (!std::is_same_v<Sum, float>) {
          Count<Sum>(sum, &counts_);
          sum = InRange(sum);
        }
        float& place = to.At(o, i, tap);
        place = call_.adds() ? place + sum : sum;
      }
    }
  }
}

// Halves: kHalfPixels positions of the batch are a partial sum, their terms in pairs. The transforms
// gather both operands from where they lie.
template <class Rule>
void GroupProduct<Rule>::HalfGradient() {
  const Conv& c = shape_.conv;
  const int64_t rows = int64_t{c.out.positions()} * shape_.batch;
  const auto fits = [&](int64_t outs, int64_t ins) {
    return ((outs + ins * c.taps()) * kHalfPixels) * int64_t{sizeof(T)} +
               outs * ins * c.taps() * 4 + 64 <=
           l1_.bytes;
  };
  int32_t outs = c.out.c, ins = c.in.c;
  while (!fits(outs, ins) && (outs > 1 || ins > 1)) {
    if (ins * c.taps() > outs && ins > 1) {
      ins = (ins + 1) / 2;
    } else {
      outs = outs > 1 ? (outs + 1) / 2 : 1;
      if (outs == 1 && !fits(outs, ins)) ins = (ins + 1) / 2;
    }
  }
  for (int32_t o = 0; o < c.out.c; o += outs) {
    for (int32_t i = 0; i < c.in.c; i += ins) {
      const FilterBox box = {o,       std::min(o + outs, c.out.c), i, std::min(i + ins, c.in.c), 0,
                             c.taps()};
      NearParts parts(l1_);
      image_ = parts.template Take<T>(kHalfPixels * box.outs() * int64_t{sizeof(T)});
      other_ = parts.template Take<T>(kHalfPixels * box.terms() * int64_t{sizeof(T)});
      sums_ = parts.template Take<Sum>(int64_t{box.outs()} * box.terms() * 4);
      std::fill_n(sums_, box.outs() * box.terms(), Sum{});
      for (int64_t r = 0; r < rows; r += kHalfPixels)
        HalfBlock(box, r, static_cast<int32_t>(std::min(kHalfPixels, rows - r)));
      StoreFilters(box, false);
    }
  }
}

template <class Rule>
void GroupProduct<Rule>::HalfBlock(const FilterBox& filters, int64_t first, int32_t count) {
  const Conv& c = shape_.conv;
  const View<const T> x = ViewOf(call_.in<T>(1), c.in), dy = ViewOf(call_.in<T>(0), c.out);
  for (int32_t r = 0; r < count; ++r) {
    const int64_t n = (first + r) / c.out.positions();
    const auto at = static_cast<int32_t>((first + r) % c.out.positions());
    const int32_t h = at / c.out.w, w = at % c.out.w;
    const auto place = static_cast<int32_t>(InPairs(r, count));
    for (int32_t o = filters.o0; o < filters.o1; ++o)
      image_[(o - filters.o0) * count + place] = dy.At(n, o, h, w);
    T* to = other_ + place;
    for (int32_t tap = 0; tap < c.taps(); ++tap) {
      const int32_t y = Sliding::Source(h, c.stride_h, tap / c.kw, c.pad_h, 1, c.in.h);
      const int32_t z = Sliding::Source(w, c.stride_w, tap % c.kw, c.pad_w, 1, c.in.w);
      for (int32_t i = filters.i0; i < filters.i1; ++i, to += count)
        *to = y < 0 || z < 0 ? T{} : x.At(n, i, y, z);
    }
  }
  MatrixCall<Rule> product;
  product.a = image_;
  product.b = other_;
  product.c = sums_;
  product.n = filters.outs();
  product.k = count;
  product.m = filters.terms();
  product.start = Start::kAdd;
  kernel_.mm_t(product);
}

// One channel: planes in rows.
template <class Rule>
void GroupProduct<Rule>::SlideDepthwise() {
  const Plane& result = shape_.positions();
  const Filters filters = FiltersOf(const_cast<float*>(call_.in(1)));
  for (int32_t tap = 0; tap < filters.taps; ++tap) Hold(filters.At(0, 0, tap), other_ + tap);
  for (int32_t n = 0; n < shape_.batch; ++n) {
    for (int32_t h = 0; h < result.h; h += tile_.rows) {
      for (int32_t w = 0; w < result.w; w += tile_.columns) {
        const Box walked = Rows(n, 0, 1, h, std::min(h + tile_.rows, result.h), w,
                                std::min(w + tile_.columns, result.w));
        const AxisTile rows = AxisH(walked.h0, walked.h1, shape_.conv.kh, 0);
        const AxisTile columns = AxisW(walked.w0, walked.w1, shape_.conv.kw, 0);
        const Box read = Rows(n, 0, 1, rows.first, rows.first + rows.count, columns.first,
                              columns.first + columns.count);
        CopyIn(ViewOf(call_.in<T>(0), shape_.source()), read, Layout::kChw, image_);
        std::fill_n(sums_, walked.plane().positions(), FirstSum(0));
        DepthwiseCall<Rule> one;
        one.conv = shape_.conv;
        one.conv.in = is_input() ? walked.plane() : read.plane();
        one.conv.out = is_input() ? read.plane() : walked.plane();
        one.conv.pad_h = rows.pad;
        one.conv.pad_w = columns.pad;
        (is_input() ? one.dy : one.x) = image_;
        one.w = other_;
        one.result = sums_;
        one.start = Start::kContinue;
        one.by_taps = kernel_.rows * kernel_.columns > 1;
        RunDepthwise(shape_.step, one);
        CopyOut(sums_, walked, Layout::kChw, ViewOf(call_.out<T>(0), result), &counts_);
      }
    }
  }
}

template <class Rule>
void GroupProduct<Rule>::GradientDepthwise() {
  const Plane& out = shape_.conv.out;
  std::fill_n(sums_, shape_.conv.taps(), Sum{});
  for (int32_t n = 0; n < shape_.batch; ++n) {
    for (int32_t h = 0; h < out.h; h += tile_.rows) {
      for (int32_t w = 0; w < out.w; w += tile_.columns) {
        const Box walked = Rows(n, 0, 1, h, std::min(h + tile_.rows, out.h), w,
                                std::min(w + tile_.columns, out.w));
        DepthwiseCall<Rule> one;
        const Box read = WindowsOf(walked, 0, 1, &one.conv);
        CopyIn(ViewOf(call_.in<T>(1), shape_.conv.in), read, Layout::kChw, image_);
        CopyIn(ViewOf(call_.in<T>(0), out), walked, Layout::kChw, other_);
        one.x = image_;
        one.dy = other_;
        one.result = sums_;
        one.start = Start::kContinue;
        RunDepthwise(shape_.step, one);
      }
    }
  }
  StoreFilters({0, 1, 0, 1, 0, shape_.conv.taps()}, false);
}

template <class Rule>
void GroupProduct<Rule>::BiasGradient() {
  if (!call_.has_output(1)) return;
  const Plane& out = shape_.conv.out;
  const View<const T> dy = ViewOf(call_.in<T>(0), out);
  for (int32_t o = 0; o < out.c; ++o) {
    double sum = 0;
    for (int32_t n = 0; n < shape_.batch; ++n) {
      for (int32_t h = 0; h < out.h; ++h) {
        for (int32_t w = 0; w < out.w; ++w) sum += ValueOf(dy.At(n, o, h, w));
      }
    }
    float& place = call_.out(1)[int64_t{group_} * out.c + o];
    const auto gradient = static_cast<float>(sum);
    place = call_.adds() ? place + gradient : gradient;
  }
}

template <class Rule>
void RunGroup(GroupProduct<Rule>& product, const ProductShape& shape) {
  const bool is_depthwise = IsDepthwise(shape);
  if (shape.step != Step::kWeightGradient) {
    if (is_depthwise) return product.SlideDepthwise();
    return product.Slide();
  }
  if (shape.in_pairs()) return product.HalfGradient();
  if (is_depthwise) return product.GradientDepthwise();
  product.Gradient();
}

}  // namespace

template <class Rule>
absl::Status RunGroups(const host::Call& call, const ProductShape& shape,
                       const ProductChoice& choice, NearMemory l1) {
  const MatrixKernel<Rule>* kernel = FindKernel<Rule>(choice.kernel);
  if (kernel == nullptr)
    return absl::InternalError(absl::StrCat("backend small has no kernel ", choice.kernel));
  RangeCounts counts;
  for (int32_t group = 0; group < shape.groups; ++group) {
    GroupProduct<Rule> product(call, shape, choice, *kernel, group, l1);
    if (shape.step == Step::kWeightGradient) product.BiasGradient();
    if (shape.is_half) {
      const FlushSubnormals flush;
      RunGroup(product, shape);
    } else {
      RunGroup(product, shape);
    }
    counts.saturated += product.counts().saturated;
    counts.underflows += product.counts().underflows;
  }
  if (call.context.range == nullptr) return absl::OkStatus();
  // Sums of F16 of a weight-gradient count among gradients, for which the loss's scale is chosen.
  const OpCode code =
      shape.step == Step::kWeightGradient ? OpCode::kConvInputGradient : call.instruction().code;
  call.context.range->Add(code, counts);
  return absl::OkStatus();
}

template absl::Status RunGroups<Float32Rule>(const host::Call&, const ProductShape&,
                                             const ProductChoice&, NearMemory);
template absl::Status RunGroups<WideRule<F16>>(const host::Call&, const ProductShape&,
                                               const ProductChoice&, NearMemory);
template absl::Status RunGroups<NarrowRule<F16>>(const host::Call&, const ProductShape&,
                                                 const ProductChoice&, NearMemory);
template absl::Status RunGroups<WideRule<Bf16>>(const host::Call&, const ProductShape&,
                                                const ProductChoice&, NearMemory);

}  // namespace runnel::small
