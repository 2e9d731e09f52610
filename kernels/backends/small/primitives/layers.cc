#include "kernels/backends/small/primitives/layers.h"

namespace runnel::small {
namespace {

constexpr Operand kX = {Tensor::kX, Transform::kAsIs};
constexpr Operand kXt = {Tensor::kX, Transform::kTransposed};
constexpr Operand kXRow = {Tensor::kX, Transform::kIm2Row};
constexpr Operand kXCol = {Tensor::kX, Transform::kIm2Col};
constexpr Operand kW = {Tensor::kW, Transform::kAsIs};
constexpr Operand kWt = {Tensor::kW, Transform::kTransposed};
constexpr Operand kWBlock = {Tensor::kW, Transform::kBlockTransposed};
constexpr Operand kDy = {Tensor::kDy, Transform::kAsIs};
constexpr Operand kDyT = {Tensor::kDy, Transform::kTransposed};
constexpr Operand kDyRow = {Tensor::kDy, Transform::kIm2Row};
constexpr Operand kDyCol = {Tensor::kDy, Transform::kIm2Col};

constexpr Layout kHwc = Layout::kHwc, kChw = Layout::kChw;
constexpr Step kFw = Step::kForward, kWg = Step::kWeightGradient, kIg = Step::kInputGradient;

// Table 4. W of MM_T with HWC is the paper's W^T.
constexpr LayerRow kRows[] = {
    {kHwc, kFw, false, false, kXRow, kW},       {kHwc, kWg, false, false, kXCol, kDy},
    {kHwc, kIg, false, false, kDyRow, kWBlock}, {kHwc, kFw, true, false, kXRow, kW},
    {kHwc, kWg, true, false, kDyT, kXCol},      {kHwc, kIg, true, false, kDyRow, kWBlock},
    {kChw, kFw, false, false, kW, kXCol},       {kChw, kWg, false, false, kDy, kXRow},
    {kChw, kIg, false, false, kWBlock, kDyCol}, {kChw, kFw, true, false, kW, kXRow},
    {kChw, kWg, true, false, kDy, kXCol},       {kChw, kIg, true, false, kWBlock, kDyRow},
    {kHwc, kFw, false, true, kX, kW},           {kHwc, kWg, false, true, kXt, kDy},
    {kHwc, kIg, false, true, kDy, kWt},         {kHwc, kFw, true, true, kX, kW},
    {kHwc, kWg, true, true, kDyT, kXt},         {kHwc, kIg, true, true, kDy, kWt},
    {kChw, kFw, false, true, kW, kX},           {kChw, kWg, false, true, kDy, kXt},
    {kChw, kIg, false, true, kWt, kDy},         {kChw, kFw, true, true, kW, kXt},
    {kChw, kWg, true, true, kDy, kX},           {kChw, kIg, true, true, kWt, kDyT},
};

int32_t TermsOf(const Conv& conv) { return conv.taps() * conv.in.c; }

bool HasOutsInside(const LayerRow& row) { return row.layout == Layout::kHwc && !row.transposed; }

int32_t ElementsOf(const Conv& conv, Tensor tensor, Transform transform) {
  const int32_t weights = TermsOf(conv) * conv.out.c;
  switch (transform) {
    case Transform::kAsIs:
      return 0;
    case Transform::kTransposed:
      return tensor == Tensor::kX   ? conv.in.elements()
             : tensor == Tensor::kW ? weights
                                    : conv.out.elements();
    case Transform::kBlockTransposed:
      return weights;
    case Transform::kIm2Row:
    case Transform::kIm2Col:
      return tensor == Tensor::kX ? conv.out.positions() * TermsOf(conv)
                                  : conv.in.positions() * conv.taps() * conv.out.c;
  }
  return 0;
}

template <class Rule>
const typename Rule::Element* Place(const LayerCall<Rule>& call, const Operand& operand,
                                    typename Rule::Element* to) {
  const Conv& conv = call.conv;
  const LayerRow& row = *call.row;
  const typename Rule::Element* from = operand.tensor == Tensor::kX   ? call.x
                                       : operand.tensor == Tensor::kW ? call.w
                                                                      : call.dy;
  switch (operand.transform) {
    case Transform::kAsIs:
      return from;
    case Transform::kTransposed: {
      const bool rows_are_channels =
          operand.tensor == Tensor::kW ? !HasOutsInside(row) : row.layout == Layout::kChw;
      const int32_t channels = operand.tensor == Tensor::kX ? conv.in.c : conv.out.c;
      const int32_t others = operand.tensor == Tensor::kX   ? conv.in.positions()
                             : operand.tensor == Tensor::kW ? TermsOf(conv)
                                                            : conv.out.positions();
      if (rows_are_channels) {
        Transpose(from, channels, others, to);
      } else {
        Transpose(from, others, channels, to);
      }
      return to;
    }
    case Transform::kBlockTransposed:
      BlockTranspose({conv.out.c, conv.in.c, conv.taps(), conv.order, HasOutsInside(row)}, from,
                     conv.keeps_taps, to);
      return to;
    case Transform::kIm2Row:
      Im2Row(SlidingOf(conv, row.layout, row.step), from, to);
      return to;
    case Transform::kIm2Col:
      Im2Col(SlidingOf(conv, row.layout, row.step), from, to);
      return to;
  }
  return from;
}

}  // namespace

const LayerRow& RowOf(Layout layout, Step step, bool transposed, bool pointwise) {
  for (const LayerRow& row : kRows) {
    if (row.layout == layout && row.step == step && row.transposed == transposed &&
        row.pointwise == pointwise)
      return row;
  }
  __builtin_unreachable();  // the table has them all
}

Sliding SlidingOf(const Conv& conv, Layout layout, Step step) {
  if (step != Step::kInputGradient) {
    return {conv.in,       layout,        conv.order, conv.out.h, conv.out.w, conv.kh, conv.kw,
            conv.stride_h, conv.stride_w, conv.pad_h, conv.pad_w, 1,          1,       false};
  }
  return {conv.out,
          layout,
          conv.order,
          conv.in.h,
          conv.in.w,
          conv.kh,
          conv.kw,
          1,
          1,
          conv.kh - 1 - conv.pad_h,
          conv.kw - 1 - conv.pad_w,
          conv.stride_h,
          conv.stride_w,
          conv.keeps_taps};
}

ProductSize SizeOf(const Conv& conv, const LayerRow& row) {
  const int32_t terms = TermsOf(conv);
  ProductSize hwc;
  switch (row.step) {
    case Step::kForward:
      hwc = {conv.out.positions(), terms, conv.out.c};
      break;
    case Step::kInputGradient:
      hwc = {conv.in.positions(), conv.taps() * conv.out.c, conv.in.c};
      break;
    case Step::kWeightGradient:
      // MM of HWC gives (terms x out), all others (out x terms).
      return HasOutsInside(row) ? ProductSize{terms, conv.out.positions(), conv.out.c}
                                : ProductSize{conv.out.c, conv.out.positions(), terms};
  }
  if (row.layout == Layout::kHwc) return hwc;
  return {hwc.m, hwc.k, hwc.n};
}

TransformSize TransformsOf(const Conv& conv, const LayerRow& row) {
  return {ElementsOf(conv, row.a.tensor, row.a.transform),
          ElementsOf(conv, row.b.tensor, row.b.transform)};
}

template <class Rule>
MatrixCall<Rule> Arrange(const LayerCall<Rule>& call) {
  const ProductSize size = SizeOf(call.conv, *call.row);
  MatrixCall<Rule> product;
  product.a = Place(call, call.row->a, call.scratch);
  product.b = Place(call, call.row->b, call.scratch + TransformsOf(call.conv, *call.row).a);
  product.c = call.result;
  product.n = size.n;
  product.k = size.k;
  product.m = size.m;
  product.start = call.start;
  return product;
}

template MatrixCall<Float32Rule> Arrange(const LayerCall<Float32Rule>&);
template MatrixCall<WideRule<F16>> Arrange(const LayerCall<WideRule<F16>>&);
template MatrixCall<WideRule<Bf16>> Arrange(const LayerCall<WideRule<Bf16>>&);
template MatrixCall<NarrowRule<F16>> Arrange(const LayerCall<NarrowRule<F16>>&);
template MatrixCall<NarrowRule<Bf16>> Arrange(const LayerCall<NarrowRule<Bf16>>&);

}  // namespace runnel::small
