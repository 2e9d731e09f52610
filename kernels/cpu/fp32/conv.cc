// Convolution and linear instructions: which driver runs them on what.

#include <utility>
#include <vector>

#include "kernels/cpu/fp32/conv_product.h"
#include "kernels/cpu/fp32/conv_weight_gradient.h"
#include "kernels/cpu/fp32/fp32_kernels.h"

namespace runnel::fp32 {
namespace {

bool IsDepthwise(const Call& call, const Shape& x, const Shape& y) {
  const int64_t groups = call.instruction->attributes.groups;
  return groups > 1 && groups == x[1] && groups == y[1];
}

ConvProduct ForwardProduct(const Call& call) {
  ConvProduct conv;
  const Window window = WindowOf(call.instruction->attributes, call.in_shape(0));
  conv.source = ImageOf(call.in_shape(0));
  conv.target = ImageOf(call.out_shape(0));
  conv.h = ForwardAxis(conv.source.h, conv.target.h, window.kh, window.sh, window.ph);
  conv.w = ForwardAxis(conv.source.w, conv.target.w, window.kw, window.sw, window.pw);
  conv.groups = call.instruction->attributes.groups;
  conv.kernel_w = window.kw;
  conv.tap_count = window.kh * window.kw;
  conv.x = call.in(0);
  conv.weight = call.in(1);
  conv.bias = call.inputs.size() > 2 ? call.in(2) : nullptr;
  conv.y = call.out(0);
  return conv;
}

ConvProduct BackwardProduct(const Call& call) {
  ConvProduct conv;
  const Window window = WindowOf(call.instruction->attributes, call.in_shape(0));
  conv.source = ImageOf(call.in_shape(0));
  conv.target = ImageOf(call.out_shape(0));
  conv.h = GradientAxis(conv.target.h, conv.source.h, window.kh, window.sh, window.ph);
  conv.w = GradientAxis(conv.target.w, conv.source.w, window.kw, window.sw, window.pw);
  conv.groups = call.instruction->attributes.groups;
  conv.kernel_w = window.kw;
  conv.tap_count = window.kh * window.kw;
  conv.backward = true;
  conv.x = call.in(0);
  conv.weight = call.in(1);
  conv.y = call.out(0);
  return conv;
}

WeightGradient GradientOf(const Call& call) {
  WeightGradient g;
  const Window window = WindowOf(call.instruction->attributes, call.in_shape(1));
  g.x_image = ImageOf(call.in_shape(1));
  g.y_image = ImageOf(call.in_shape(0));
  g.h = ForwardAxis(g.x_image.h, g.y_image.h, window.kh, window.sh, window.ph);
  g.w = ForwardAxis(g.x_image.w, g.y_image.w, window.kw, window.sw, window.pw);
  g.groups = call.instruction->attributes.groups;
  g.x = call.in(1);
  g.dy = call.in(0);
  g.dweight = call.out(0);
  return g;
}

void BiasGradient(const Call& call) {
  if (call.outputs.size() < 2) return;
  const Image image = ImageOf(call.in_shape(0));
  float* sums = call.Take<float>(image.c);
  ColumnSums(call, call.in(0), image.rows(), image.c, sums);
  StoreGradient(call.kernels(), sums, image.c, call.context->accumulate, call.out(1));
}

// A linear layer is a 1x1 convolution of one pixel; its attributes say nothing of windows.
ConvProduct LinearProduct(const Call& call) {
  ConvProduct conv;
  conv.source = ImageOf(call.in_shape(0));
  conv.target = ImageOf(call.out_shape(0));
  conv.h = conv.w = ForwardAxis(1, 1, 1, 1, 0);
  conv.x = call.in(0);
  conv.weight = call.in(1);
  conv.y = call.out(0);
  return conv;
}

}  // namespace

absl::Status ConvForward(Calls calls) {
  const Call& call = calls[0];
  if (IsDepthwise(call, call.in_shape(0), call.out_shape(0))) {
    DepthwiseForward(call);
  } else {
    RunConvProduct(call, ForwardProduct(call));
  }
  return absl::OkStatus();
}

absl::Status ConvInputGradient(Calls calls) {
  const Call& call = calls[0];
  if (IsDepthwise(call, call.out_shape(0), call.in_shape(0))) {
    DepthwiseInputGradient(call);
  } else {
    RunConvProduct(call, BackwardProduct(call));
  }
  return absl::OkStatus();
}

absl::Status ConvWeightGradient(Calls calls) {
  const Call& call = calls[0];
  BiasGradient(call);
  if (IsDepthwise(call, call.in_shape(1), call.in_shape(0))) {
    DepthwiseWeightGradient(call);
  } else {
    RunWeightGradient(call, GradientOf(call));
  }
  return absl::OkStatus();
}

absl::Status LinearForward(Calls calls) {
  const Call& call = calls[0];
  ConvProduct conv = LinearProduct(call);
  if (call.inputs.size() > 2) conv.bias = call.in(2);
  RunConvProduct(call, conv);
  return absl::OkStatus();
}

absl::Status LinearInputGradient(Calls calls) {
  ConvProduct conv = LinearProduct(calls[0]);
  conv.backward = true;
  RunConvProduct(calls[0], conv);
  return absl::OkStatus();
}

absl::Status LinearWeightGradient(Calls calls) {
  const Call& call = calls[0];
  BiasGradient(call);
  WeightGradient g;
  g.x_image = ImageOf(call.in_shape(1));
  g.y_image = ImageOf(call.in_shape(0));
  g.h = g.w = ForwardAxis(1, 1, 1, 1, 0);
  g.x = call.in(1);
  g.dy = call.in(0);
  g.dweight = call.out(0);
  RunWeightGradient(call, g);
  return absl::OkStatus();
}

}  // namespace runnel::fp32
