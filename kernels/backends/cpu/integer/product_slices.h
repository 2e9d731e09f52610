#pragma once

// Shapes of convolutions and linear layers, and the slices in which they take their batch
// (Instruction::split).

#include <algorithm>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/backends/cpu/integer/integer_kernels.h"

namespace runnel::cpu {

// x and y: of the operator, whatever the pass.
ConvShape ProductShapeOf(const Call& call, const Shape& x, const Shape& y);

// One slice: its shape, and the place of its samples.
struct ProductSlice {
  ConvShape shape;
  int64_t first = 0;
  bool is_last = false;

  int64_t x_offset() const { return first * shape.in_h * shape.in_w * shape.in_c; }
  int64_t y_offset() const { return first * shape.out_h * shape.out_w * shape.out_c; }
};

class ProductSlices {
 public:
  // `call` outlives the slices. Takes the workspace of the pass, which all slices use.
  ProductSlices(const Call& call, const ConvShape& whole, ConvPass pass);

  // The largest slice, which is the first.
  const ConvShape& largest() const { return slice_; }
  int64_t count() const { return (batch_ + slice_.batch - 1) / slice_.batch; }
  const Int8Context& context() const { return context_; }
  // Calls `body` for each slice in the order of the batch.
  void ForEach(absl::FunctionRef<void(const ProductSlice&)> body) const {
    for (int64_t n = 0; n < batch_; n += slice_.batch) {
      ProductSlice slice = {slice_, n, n + slice_.batch >= batch_};
      slice.shape.batch = std::min(slice_.batch, batch_ - n);
      body(slice);
    }
  }

 private:
  const int64_t batch_;
  ConvShape slice_;
  Int8Context context_;
};

// The tail of a product's sums.
inline void FinishSums(const Call& call, int64_t max_abs, int32_t shift = 0) {
  TailOfOutput(call, 0) = {
      .exponent = TailOfInput(call, 0).exponent + TailOfInput(call, 1).exponent + shift,
      .max_abs = max_abs};
}

}  // namespace runnel::cpu
