#pragma once

// Convolutions as products: the paper's table 4 as a table. All operands lie in the nearest memory.
//
//   X, dX   Plane of Layout, `in`          Y, dY   Plane of Layout, `out`
//   W, dW   (out x terms); HWC with MM: (terms x out); terms as Conv::order says
//
// A row is a product of two operands, each a tensor as it lies or transformed. A linear layer is a
// pointwise convolution of one position. What a sum begins with, and its order: matrix.h. Terms
// ascend: of the forward by Conv::order, of the weight-gradient by output position, of the
// input-gradient by position of the window over dY (taps of W descend; ascend with keeps_taps).
//
// Freestanding. Any thread.

#include "kernels/backends/small/primitives/matrix.h"
#include "kernels/backends/small/primitives/transforms.h"

namespace runnel::small {

enum class Step : uint8_t { kForward, kWeightGradient, kInputGradient };
enum class Tensor : uint8_t { kX, kW, kDy };
enum class Transform : uint8_t { kAsIs, kTransposed, kIm2Row, kIm2Col, kBlockTransposed };

struct Operand {
  Tensor tensor;
  Transform transform;
};

struct LayerRow {
  Layout layout;
  Step step;
  bool transposed;  // MM_T
  bool pointwise;
  Operand a, b;
};
// All rows: two layouts, three steps, MM (the paper's FP32) and MM_T (its FP16), convolution and
// pointwise.
const LayerRow& RowOf(Layout layout, Step step, bool transposed, bool pointwise);

// A convolution, or a tile of one: `in` and `out` are what lies here. Padding is what lies before the
// first element of `in`; a tile's may be less than 0.
struct Conv {
  Plane in, out;
  int32_t kh = 1, kw = 1;
  int32_t stride_h = 1, stride_w = 1;
  int32_t pad_h = 0, pad_w = 0;
  TermOrder order = TermOrder::kTapsFirst;
  bool keeps_taps = false;

  int32_t taps() const { return kh * kw; }
  bool is_pointwise() const {
    return taps() == 1 && stride_h == 1 && stride_w == 1 && pad_h == 0 && pad_w == 0 &&
           in.h == out.h && in.w == out.w;
  }
};

// The window of a step over X (forward, weight-gradient) or dY (input-gradient).
Sliding SlidingOf(const Conv& conv, Layout layout, Step step);

// Rows, terms and columns of the product.
struct ProductSize {
  int32_t n = 0, k = 0, m = 0;
};
ProductSize SizeOf(const Conv& conv, const LayerRow& row);
// Elements of the transformed operands; 0 of one that is taken as it lies.
struct TransformSize {
  int32_t a = 0, b = 0;
};
TransformSize TransformsOf(const Conv& conv, const LayerRow& row);

template <class Rule>
struct LayerCall {
  Conv conv;
  const LayerRow* row = nullptr;
  const MatrixKernel<Rule>* kernel = nullptr;
  const typename Rule::Element *x = nullptr, *w = nullptr, *dy = nullptr;  // the two that are read
  typename Rule::Sum* result = nullptr;                                    // Y, dW or dX
  typename Rule::Element* scratch = nullptr;  // of TransformsOf, a before b
  Start start = Start::kZero;
};
// The operands of the product: transforms what has to be transformed.
template <class Rule>
MatrixCall<Rule> Arrange(const LayerCall<Rule>& call);
template <class Rule>
void RunLayer(const LayerCall<Rule>& call) {
  const MatrixCall<Rule> product = Arrange(call);
  (call.row->transposed ? call.kernel->mm_t : call.kernel->mm)(product);
}

}  // namespace runnel::small
