#include "kernels/backends/cpu/integer/product_slices.h"

namespace runnel::cpu {

ConvShape ProductShapeOf(const Call& call, const Shape& x, const Shape& y) {
  const OpSpec& op = call.instruction->attributes;
  if (op.kind == OpKind::kLinear) return LinearShape(x[0], y[1], x[1]);
  const Image in = ImageOf(x), out = ImageOf(y);
  const Window window = WindowOf(op, x);
  ConvShape shape;
  shape.batch = in.n;
  shape.in_h = in.h;
  shape.in_w = in.w;
  shape.in_c = in.c;
  shape.out_h = out.h;
  shape.out_w = out.w;
  shape.out_c = out.c;
  shape.kernel_h = window.kh;
  shape.kernel_w = window.kw;
  shape.stride_h = window.sh;
  shape.stride_w = window.sw;
  shape.pad_h = window.ph;
  shape.pad_w = window.pw;
  shape.groups = op.groups;
  return shape;
}

ProductSlices::ProductSlices(const Call& call, const ConvShape& whole, ConvPass pass)
    : batch_(whole.batch), slice_(whole) {
  slice_.batch = call.instruction->split.SliceOf(batch_);
  ConvShape rest = slice_;
  if (batch_ % slice_.batch != 0) rest.batch = batch_ % slice_.batch;
  const Int8Kernels& kernels = *call.machine.int8;
  const int workers = call.machine.workers();
  // A smaller batch may be computed another way.
  const int64_t bytes = std::max(Int8WorkspaceBytes(kernels, slice_, pass, workers),
                                 Int8WorkspaceBytes(kernels, rest, pass, workers));
  context_ = {&kernels, call.machine.pool, call.Take<std::byte>(bytes)};
}

}  // namespace runnel::cpu
