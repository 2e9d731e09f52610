// Convolution and linear instructions, alone and together with the batch normalisation and the
// activation around them (fused_steps.h): what is read is made block by block, and what is written
// is summed up while it lies in the cache.

#include <utility>

#include "kernels/backends/cpu/fp32/batch_norm.h"
#include "kernels/backends/cpu/fp32/conv/backward.h"
#include "kernels/backends/cpu/fp32/conv/depthwise.h"
#include "kernels/backends/cpu/fp32/conv/product.h"
#include "kernels/backends/cpu/fp32/conv/weight_gradient.h"
#include "kernels/backends/cpu/fp32/conv/winograd.h"
#include "kernels/backends/cpu/fp32/fp32_kernels.h"

namespace runnel::fp32 {
namespace {

bool IsDepthwise(const Call& call, const Shape& x, const Shape& y) {
  const int64_t groups = call.instruction->attributes.groups;
  return groups > 1 && groups == x[1] && groups == y[1];
}

AxisWindow RowsOf(const Window& w, const Image& x, const Image& y) {
  return {x.h, y.h, w.kh, w.sh, w.ph, w.dh};
}
AxisWindow ColumnsOf(const Window& w, const Image& x, const Image& y) {
  return {x.w, y.w, w.kw, w.sw, w.pw, w.dw};
}

ConvProduct ForwardProduct(const Call& call) {
  ConvProduct conv;
  const Window window = WindowOf(call.instruction->attributes, call.in_shape(0));
  conv.source = ImageOf(call.in_shape(0));
  conv.target = ImageOf(call.out_shape(0));
  conv.h = ForwardAxis(RowsOf(window, conv.source, conv.target));
  conv.w = ForwardAxis(ColumnsOf(window, conv.source, conv.target));
  conv.groups = call.instruction->attributes.groups;
  conv.kernel_w = window.kw;
  conv.tap_count = window.kh * window.kw;
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
  conv.h = GradientAxis(RowsOf(window, conv.target, conv.source));
  conv.w = GradientAxis(ColumnsOf(window, conv.target, conv.source));
  conv.groups = call.instruction->attributes.groups;
  conv.kernel_w = window.kw;
  conv.tap_count = window.kh * window.kw;
  conv.backward = true;
  conv.weight = call.in(1);
  conv.y = call.out(0);
  return conv;
}

WeightGradient GradientOf(const Call& call) {
  WeightGradient g;
  const Window window = WindowOf(call.instruction->attributes, call.in_shape(1));
  g.x_image = ImageOf(call.in_shape(1));
  g.y_image = ImageOf(call.in_shape(0));
  g.h = ForwardAxis(RowsOf(window, g.x_image, g.y_image));
  g.w = ForwardAxis(ColumnsOf(window, g.x_image, g.y_image));
  g.groups = call.instruction->attributes.groups;
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
  conv.h = conv.w = ForwardAxis({});
  conv.weight = call.in(1);
  conv.y = call.out(0);
  return conv;
}

ConvProduct LinearForwardProduct(const Call& call) {
  ConvProduct conv = LinearProduct(call);
  if (call.inputs.size() > 2) conv.bias = call.in(2);
  return conv;
}

// What the calls behind the first, a product, do with its sums.
SumFinish FinishOf(Calls calls) {
  SumFinish finish;
  finish.sums = calls[0].out(0);
  finish.target = calls.back().out(0);
  Clamp* clamp = &finish.first;
  for (size_t i = 1; i < calls.size(); ++i) {
    const Call& call = calls[i];
    if (call.instruction->code == OpCode::kBatchNormEval) {
      const Normalisation norm = NormalisationOf(call, Activation::kNone);
      finish.factor = norm.factor;
      finish.offset = norm.offset;
    } else if (call.instruction->code == OpCode::kAddForward) {
      const bool is_first = call.instruction->inputs[0] == calls[i - 1].instruction->outputs[0];
      finish.addend = call.in(is_first ? 1 : 0);
      clamp = &finish.second;
    } else {
      clamp->low = 0;
      if (call.instruction->code == OpCode::kRelu6Forward) clamp->high = 6;
    }
  }
  return finish;
}

Activation ActivationOf(const Call* call) {
  if (call == nullptr) return Activation::kNone;
  const OpCode code = call->instruction->code;
  const bool relu = code == OpCode::kReluForward || code == OpCode::kReluInputGradient;
  return relu ? Activation::kRelu : Activation::kRelu6;
}

// The output of `norm` and, if not null, the activation behind it.
RowSource NormalisedSource(const Call& norm, const Call* activation) {
  const Call& last = activation == nullptr ? norm : *activation;
  return {.kind = RowSource::Kind::kNormalised,
          .channels = norm.in_shape(0)[1],
          .x = norm.in(0),
          .norm = NormalisationOf(norm, ActivationOf(activation)),
          .place = last.keep_output ? last.out(0) : nullptr};
}

constexpr auto kNothing = [](int64_t, int64_t) {};

}  // namespace

// [batch norm, [activation]], convolution, [statistics of the batch norm that follows].
absl::Status ConvForward(Calls calls) {
  size_t at = 0;
  while (calls[at].instruction->code != OpCode::kConvForward) ++at;
  const Call& call = calls[at];
  RowSource source = RowSource::Plain(call.in(0), call.in_shape(0)[1]);
  if (at > 0) {
    EnsureStatistics(calls[0]);
    source = NormalisedSource(calls[0], at > 1 ? &calls[1] : nullptr);
  }
  const ConvProduct conv = ForwardProduct(call);
  if (call.instruction->winograd) {
    const int64_t rows = conv.source.rows();
    float* made = call.Take<float>(source.made() ? rows * conv.source.c : 0);
    RunWinograd(call, conv, source.Rows(call.kernels(), 0, rows, made));
    return absl::OkStatus();
  }
  const bool depthwise = IsDepthwise(call, call.in_shape(0), call.out_shape(0));
  const auto run = [&](absl::FunctionRef<void(int64_t, int64_t)> after) {
    depthwise ? RunDepthwise(call, conv, source, after) : RunConvProduct(call, conv, source, after);
  };
  if (at + 1 == calls.size()) {
    run(kNothing);
    return absl::OkStatus();
  }
  PieceSums sums(call, conv.target);
  run([&](int64_t row, int64_t count) { AddMoments(call, conv.y, row, count, sums); });
  FinishStatistics(calls[at + 1], sums);
  return absl::OkStatus();
}

// A convolution or linear layer in evaluation, with what fused_steps.cc puts behind it.
absl::Status FinishedProduct(Calls calls) {
  const Call& call = calls[0];
  const bool is_linear = call.instruction->code == OpCode::kLinearForward;
  ConvProduct conv = is_linear ? LinearForwardProduct(call) : ForwardProduct(call);
  const SumFinish finish = FinishOf(calls);
  conv.finish = &finish;
  const RowSource source = RowSource::Plain(call.in(0), conv.source.c);
  if (call.instruction->winograd) {
    RunWinograd(call, conv, call.in(0));
  } else if (!is_linear && IsDepthwise(call, call.in_shape(0), call.out_shape(0))) {
    RunDepthwise(call, conv, source, kNothing);
  } else {
    RunConvProduct(call, conv, source, kNothing);
  }
  return absl::OkStatus();
}

absl::Status ConvBackward(Calls calls) {
  const BackwardRoles roles(calls);
  const Call& first = roles.weight != nullptr ? *roles.weight : *roles.input;
  RowSource dy = RowSource::Plain(first.in(0), first.in_shape(0)[1]);
  if (roles.norm != nullptr) {
    const Call& norm = *roles.norm;
    const float* gradient = roles.activation == nullptr ? norm.in(0) : roles.activation->in(0);
    const Normalisation n = NormalisationOf(norm, ActivationOf(roles.activation));
    EnsureGradientSums(norm, n, gradient);
    dy = GradientSource(norm, n, gradient);
    dy.place = norm.keep_output ? norm.out(0) : nullptr;
  }
  ConvBackwardParts parts = {.dy = dy};
  if (roles.weight != nullptr) {
    parts.weight = GradientOf(*roles.weight);
    parts.x = RowSource::Plain(roles.weight->in(1), roles.weight->in_shape(1)[1]);
    if (roles.x_norm != nullptr) parts.x = NormalisedSource(*roles.x_norm, roles.x_activation);
  }
  if (roles.input != nullptr) parts.input = BackwardProduct(*roles.input);
  parts.depthwise = roles.weight != nullptr
                        ? IsDepthwise(first, first.in_shape(1), first.in_shape(0))
                        : IsDepthwise(first, first.out_shape(0), first.in_shape(0));
  if (roles.next_norm != nullptr) {
    parts.next_norm = roles.next_norm;
    parts.next = NormalisationOf(*roles.next_norm, ActivationOf(roles.next_activation));
  }
  RunConvBackward(first, parts);
  if (roles.weight != nullptr) BiasGradient(*roles.weight);
  return absl::OkStatus();
}

absl::Status LinearForward(Calls calls) {
  const Call& call = calls[0];
  const ConvProduct conv = LinearForwardProduct(call);
  RunConvProduct(call, conv, RowSource::Plain(call.in(0), conv.source.c), kNothing);
  return absl::OkStatus();
}

absl::Status LinearInputGradient(Calls calls) {
  const Call& call = calls[0];
  ConvProduct conv = LinearProduct(call);
  conv.backward = true;
  RunConvProduct(call, conv, RowSource::Plain(call.in(0), conv.source.c), kNothing);
  return absl::OkStatus();
}

absl::Status LinearWeightGradient(Calls calls) {
  const Call& call = calls[0];
  WeightGradient g;
  g.x_image = ImageOf(call.in_shape(1));
  g.y_image = ImageOf(call.in_shape(0));
  g.h = g.w = ForwardAxis({});
  g.dweight = call.out(0);
  RunWeightGradient(call, g, RowSource::Plain(call.in(1), g.x_image.c),
                    RowSource::Plain(call.in(0), g.y_image.c));
  BiasGradient(call);
  return absl::OkStatus();
}

}  // namespace runnel::fp32
