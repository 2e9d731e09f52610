#include "kernels/backends/torch/torch_kernels.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "kernels/backends/host/optimizer_update.h"
#include "kernels/backends/host/plain_kernels.h"
#include "proto/base/training/mixed_label.h"

namespace runnel {
namespace {

using host::Call;
using host::Image;
using host::ImageOf;
using host::Window;
using host::WindowOf;

// Tensors over memory that is bound. LibTorch has no read-only ones.
at::Tensor View(const float* data, at::IntArrayRef sizes) {
  return at::from_blob(const_cast<float*>(data), sizes);
}
at::Tensor Flat(const float* data, const Shape& shape) { return View(data, {shape.elements()}); }
// (N, C, H, W), 1d along W.
at::Tensor Images(const float* data, const Shape& shape) {
  const Image image = ImageOf(shape);
  return View(data, {image.n, image.c, image.h, image.w});
}
// A value a channel, to be spread over (N, C, H, W).
at::Tensor Channels(const float* data, int64_t channels) { return View(data, {1, channels, 1, 1}); }

// Output i of the call becomes the weight-gradient, or has it added.
void StoreGradient(const Call& call, size_t i, const at::Tensor& gradient) {
  at::Tensor target = View(call.out(i), gradient.sizes());
  call.adds() ? target.add_(gradient) : target.copy_(gradient);
}

// Padding that windows reach, in the order of constant_pad_nd: left, right, above, below.
std::array<int64_t, 4> PaddingOf(const Window& window, const Image& x, const Image& y) {
  const auto behind = [](int64_t in, int64_t out, int64_t extent, int64_t stride, int64_t before) {
    return std::max<int64_t>(0, (out - 1) * stride + extent - in - before);
  };
  return {window.pw, behind(x.w, y.w, (window.kw - 1) * window.dw + 1, window.sw, window.pw),
          window.ph, behind(x.h, y.h, (window.kh - 1) * window.dh + 1, window.sh, window.ph)};
}

// ---- products

struct Conv {
  Window window;
  int64_t groups;
  std::array<int64_t, 4> weight;  // sizes
  std::array<int64_t, 4> pads;
  bool pads_apart;  // in a copy of the images

  Conv(const Call& call, const Shape& x, const Shape& y)
      : window(WindowOf(call.attributes(), x)),
        groups(call.attributes().groups),
        pads(PaddingOf(window, ImageOf(x), ImageOf(y))),
        pads_apart(call.attributes().pads_by_side()) {
    weight = {y[1], x[1] / groups, window.kh, window.kw};
  }
  std::array<int64_t, 2> stride() const { return {window.sh, window.sw}; }
  std::array<int64_t, 2> padding() const {
    return pads_apart ? std::array<int64_t, 2>{0, 0} : std::array<int64_t, 2>{window.ph, window.pw};
  }
  at::Tensor Padded(const at::Tensor& x) const {
    return pads_apart ? at::constant_pad_nd(x, pads, 0) : x;
  }
  std::array<int64_t, 2> dilation() const { return {window.dh, window.dw}; }
};
constexpr std::array<int64_t, 2> kNoOutputPadding = {0, 0};

absl::Status ConvForward(const Call& call) {
  const Conv conv(call, call.in_shape(0), call.out_shape(0));
  c10::optional<at::Tensor> bias;
  if (call.has_input(2)) bias = View(call.in(2), {conv.weight[0]});
  Images(call.out(0), call.out_shape(0))
      .copy_(at::convolution(conv.Padded(Images(call.in(0), call.in_shape(0))),
                             View(call.in(1), conv.weight), bias, conv.stride(), conv.padding(),
                             conv.dilation(),
                             /*transposed=*/false, kNoOutputPadding, conv.groups));
  return absl::OkStatus();
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvBackward(const Conv& conv, const at::Tensor& dy,
                                                            const at::Tensor& x,
                                                            const at::Tensor& weight,
                                                            std::array<bool, 3> wanted) {
  return at::convolution_backward(dy, x, weight, c10::nullopt, conv.stride(), conv.padding(),
                                  conv.dilation(), /*transposed=*/false, kNoOutputPadding,
                                  conv.groups, wanted);
}

absl::Status ConvInputGradient(const Call& call) {
  const Conv conv(call, call.out_shape(0), call.in_shape(0));
  // x gives only its sizes here; the output has them.
  at::Tensor dx = Images(call.out(0), call.out_shape(0));
  at::Tensor padded =
      std::get<0>(ConvBackward(conv, Images(call.in(0), call.in_shape(0)), conv.Padded(dx),
                               View(call.in(1), conv.weight), {true, false, false}));
  if (conv.pads_apart) {
    padded = padded.narrow(2, conv.window.ph, dx.size(2)).narrow(3, conv.window.pw, dx.size(3));
  }
  dx.copy_(padded);
  return absl::OkStatus();
}

absl::Status ConvWeightGradient(const Call& call) {
  const Conv conv(call, call.in_shape(1), call.in_shape(0));
  const at::Tensor dy = Images(call.in(0), call.in_shape(0));
  // The weight gives only its sizes; its gradient has them.
  StoreGradient(
      call, 0,
      std::get<1>(ConvBackward(conv, dy, conv.Padded(Images(call.in(1), call.in_shape(1))),
                               View(call.out(0), conv.weight), {false, true, false})));
  if (call.has_output(1)) StoreGradient(call, 1, dy.sum({0, 2, 3}));
  return absl::OkStatus();
}

at::Tensor Matrix(const float* data, const Shape& shape) {
  return View(data, {shape[0], shape.elements() / shape[0]});
}

absl::Status LinearForward(const Call& call) {
  at::Tensor y = Matrix(call.out(0), call.out_shape(0));
  const at::Tensor x = Matrix(call.in(0), call.in_shape(0));
  const at::Tensor weight = View(call.in(1), {y.size(1), x.size(1)}).t();
  if (call.has_input(2)) {
    at::addmm_out(y, View(call.in(2), {y.size(1)}), x, weight);
  } else {
    at::mm_out(y, x, weight);
  }
  return absl::OkStatus();
}

absl::Status LinearInputGradient(const Call& call) {
  at::Tensor dx = Matrix(call.out(0), call.out_shape(0));
  const at::Tensor dy = Matrix(call.in(0), call.in_shape(0));
  at::mm_out(dx, dy, View(call.in(1), {dy.size(1), dx.size(1)}));
  return absl::OkStatus();
}

absl::Status LinearWeightGradient(const Call& call) {
  const at::Tensor dy = Matrix(call.in(0), call.in_shape(0));
  StoreGradient(call, 0, at::mm(dy.t(), Matrix(call.in(1), call.in_shape(1))));
  if (call.has_output(1)) StoreGradient(call, 1, dy.sum(0));
  return absl::OkStatus();
}

// ---- batch normalisation

void Normalise(const Call& call, const at::Tensor& mean, const at::Tensor& inverse_deviation) {
  const int64_t channels = call.in_shape(0)[1];
  const at::Tensor factor = inverse_deviation.mul(Channels(call.in(1), channels));
  Images(call.out(0), call.out_shape(0))
      .copy_(Images(call.in(0), call.in_shape(0))
                 .sub(mean)
                 .mul_(factor)
                 .add_(Channels(call.in(2), channels)));
}

// running = (1 - momentum) * running + momentum * seen
void UpdateRunning(const Call& call, size_t i, const at::Tensor& seen) {
  const double momentum = call.attributes().momentum;
  Channels(call.out(i), call.in_shape(0)[1]).mul_(1 - momentum).add_(seen, momentum);
}

absl::Status BatchNormForward(const Call& call) {
  const Shape& shape = call.in_shape(0);
  const int64_t channels = shape[1], count = shape.elements() / channels;
  const auto [variance, mean] = at::var_mean(Images(call.in(0), shape), at::IntArrayRef{0, 2, 3},
                                             /*unbiased=*/false, /*keepdim=*/true);
  const at::Tensor inverse_deviation = variance.add(call.attributes().epsilon).rsqrt_();
  Channels(call.out(1), channels).copy_(mean);
  Channels(call.out(1) + channels, channels).copy_(inverse_deviation);
  Normalise(call, mean, inverse_deviation);
  const double unbiased =
      count > 1 ? static_cast<double>(count) / static_cast<double>(count - 1) : 1;
  UpdateRunning(call, 2, mean);
  UpdateRunning(call, 3, variance.mul(unbiased));
  return absl::OkStatus();
}

absl::Status BatchNormEval(const Call& call) {
  const int64_t channels = call.in_shape(0)[1];
  Normalise(call, Channels(call.in(3), channels),
            Channels(call.in(4), channels).add(call.attributes().epsilon).rsqrt_());
  return absl::OkStatus();
}

absl::Status BatchNormAgain(const Call& call) {
  const int64_t channels = call.in_shape(0)[1];
  Normalise(call, Channels(call.in(3), channels), Channels(call.in(3) + channels, channels));
  return absl::OkStatus();
}

absl::Status BatchNormInputGradient(const Call& call) {
  const int64_t channels = call.in_shape(0)[1];
  const auto [dx, dscale, dshift] = at::native_batch_norm_backward(
      Images(call.in(0), call.in_shape(0)), Images(call.in(1), call.in_shape(1)),
      View(call.in(2), {channels}), c10::nullopt, c10::nullopt, View(call.in(3), {channels}),
      View(call.in(3) + channels, {channels}), /*train=*/true, call.attributes().epsilon,
      {true, true, true});
  Images(call.out(0), call.out_shape(0)).copy_(dx);
  View(call.out(1), {channels}).copy_(dscale);
  View(call.out(1) + channels, {channels}).copy_(dshift);
  return absl::OkStatus();
}

absl::Status BatchNormWeightGradient(const Call& call) {
  const int64_t channels = call.out_shape(0)[0];
  StoreGradient(call, 0, View(call.in(0), {channels}));
  StoreGradient(call, 1, View(call.in(0) + channels, {channels}));
  return absl::OkStatus();
}

// ---- elementwise

absl::Status ReluForward(const Call& call) {
  Flat(call.out(0), call.out_shape(0)).copy_(Flat(call.in(0), call.in_shape(0)).relu());
  return absl::OkStatus();
}
absl::Status Relu6Forward(const Call& call) {
  Flat(call.out(0), call.out_shape(0)).copy_(Flat(call.in(0), call.in_shape(0)).clamp(0, 6));
  return absl::OkStatus();
}
absl::Status ReluInputGradient(const Call& call) {
  const at::Tensor dy = Flat(call.in(0), call.in_shape(0)), y = Flat(call.in(1), call.in_shape(1));
  Flat(call.out(0), call.out_shape(0)).copy_(dy.masked_fill(y.le(0), 0));
  return absl::OkStatus();
}
absl::Status Relu6InputGradient(const Call& call) {
  const at::Tensor dy = Flat(call.in(0), call.in_shape(0)), y = Flat(call.in(1), call.in_shape(1));
  Flat(call.out(0), call.out_shape(0)).copy_(dy.masked_fill(y.le(0).logical_or_(y.ge(6)), 0));
  return absl::OkStatus();
}
absl::Status Add(const Call& call) {
  const at::Tensor a = Flat(call.in(0), call.in_shape(0)), b = Flat(call.in(1), call.in_shape(1));
  Flat(call.out(0), call.out_shape(0)).copy_(a.add(b));
  return absl::OkStatus();
}

absl::Status UpdateByOptimizer(const Call& call) {
  // Of sgd alone LibTorch has an order of its own.
  if (call.optimizer()->row != StepOf(nullptr).row) return host::UpdateByOptimizer(call);
  const at::Tensor weights = Flat(call.in(0), call.in_shape(0));
  const at::Tensor gradients = Flat(call.in(1), call.in_shape(1));
  at::Tensor velocity = Flat(call.in_out(2), call.in_shape(2));
  velocity.mul_(call.context.momentum)
      .add_(gradients.mul(call.context.gradient_factor).add(weights, call.context.weight_decay));
  Flat(call.out(0), call.out_shape(0)).copy_(weights.sub(velocity, call.context.learning_rate));
  return absl::OkStatus();
}

// ---- pools

// Row-major position of the first tap of each output (oh, ow) in a plane of `width` columns.
at::Tensor FirstTaps(const Window& window, const Image& y, int64_t width) {
  const at::Tensor rows = at::arange(y.h, at::kLong).mul_(window.sh * width).unsqueeze(1);
  return rows.add(at::arange(y.w, at::kLong).mul_(window.sw).unsqueeze(0));
}

absl::Status MaxPoolForward(const Call& call) {
  const Window window = WindowOf(call.attributes(), call.in_shape(0));
  const Image y = ImageOf(call.out_shape(0));
  const std::array<int64_t, 4> pads = PaddingOf(window, ImageOf(call.in_shape(0)), y);
  const at::Tensor padded = at::constant_pad_nd(Images(call.in(0), call.in_shape(0)), pads,
                                                -std::numeric_limits<float>::infinity());
  const int64_t width = padded.size(3);
  const auto [largest, places] =
      at::max_pool2d_with_indices(padded, {window.kh, window.kw}, {window.sh, window.sw});
  Images(call.out(0), call.out_shape(0)).copy_(largest);
  if (!call.has_output(1)) return absl::OkStatus();
  // From the place in the plane to that in the window.
  const at::Tensor steps = places.sub(FirstTaps(window, y, width));
  at::from_blob(call.out<uint8_t>(1), {y.n, y.c, y.h, y.w}, at::kByte)
      .copy_(steps.div(width, "floor").mul_(window.kw).add_(steps.remainder(width)));
  return absl::OkStatus();
}

absl::Status MaxPoolInputGradient(const Call& call) {
  const Window window = WindowOf(call.attributes(), call.out_shape(0));
  const Image x = ImageOf(call.out_shape(0)), y = ImageOf(call.in_shape(0));
  const std::array<int64_t, 4> pads = PaddingOf(window, x, y);
  const int64_t height = x.h + pads[2] + pads[3], width = x.w + pads[0] + pads[1];
  const at::Tensor taps =
      at::from_blob(const_cast<uint8_t*>(call.in<uint8_t>(1)), {y.n, y.c, y.h, y.w}, at::kByte)
          .to(at::kLong);
  const at::Tensor places = taps.div(window.kw, "floor")
                                .mul_(width)
                                .add_(taps.remainder(window.kw))
                                .add_(FirstTaps(window, y, width));
  at::Tensor padded = at::zeros({x.n, x.c, height * width});
  padded.scatter_add_(2, places.flatten(2), Images(call.in(0), call.in_shape(0)).flatten(2));
  Images(call.out(0), call.out_shape(0))
      .copy_(padded.view({x.n, x.c, height, width})
                 .narrow(2, window.ph, x.h)
                 .narrow(3, window.pw, x.w));
  return absl::OkStatus();
}

absl::Status AvgPoolForward(const Call& call) {
  const Window window = WindowOf(call.attributes(), call.in_shape(0));
  Images(call.out(0), call.out_shape(0))
      .copy_(at::avg_pool2d(Images(call.in(0), call.in_shape(0)), {window.kh, window.kw},
                            {window.sh, window.sw}));
  return absl::OkStatus();
}

absl::Status AvgPoolInputGradient(const Call& call) {
  const Window window = WindowOf(call.attributes(), call.out_shape(0));
  at::Tensor dx = Images(call.out(0), call.out_shape(0));
  dx.copy_(at::avg_pool2d_backward(Images(call.in(0), call.in_shape(0)), dx, {window.kh, window.kw},
                                   {window.sh, window.sw}, /*padding=*/{0, 0}, /*ceil_mode=*/false,
                                   /*count_include_pad=*/true, c10::nullopt));
  return absl::OkStatus();
}

absl::Status GlobalAvgPoolForward(const Call& call) {
  const at::Tensor x = Images(call.in(0), call.in_shape(0));
  View(call.out(0), {x.size(0), x.size(1)}).copy_(x.mean({2, 3}));
  return absl::OkStatus();
}

absl::Status GlobalAvgPoolInputGradient(const Call& call) {
  at::Tensor dx = Images(call.out(0), call.out_shape(0));
  const at::Tensor dy = View(call.in(0), {dx.size(0), dx.size(1), 1, 1});
  dx.copy_(dy.div(dx.size(2) * dx.size(3)).expand_as(dx));
  return absl::OkStatus();
}

// ---- the loss, in double

absl::Status CheckLabels(const Call& call) {
  const int64_t samples = call.in_shape(0)[0], classes = call.in_shape(0)[1];
  for (int64_t n = 0; n < samples; ++n) {
    const int32_t label = call.in<int32_t>(1)[n];
    if (IsLabelOf(label, classes)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("label ", label, " of sample ", n, " is not below ", classes, " classes"));
  }
  return absl::OkStatus();
}

// Without a gradient it is an evaluation, whose labels are whole.
absl::Status CrossEntropy(const Call& call, float* gradient, double* metrics) {
  if (absl::Status status = CheckLabels(call); !status.ok()) return status;
  const at::Tensor logits = Matrix(call.in(0), call.in_shape(0)).to(at::kDouble);
  const at::Tensor first = at::empty({logits.size(0), 1}, at::kLong), second = first.clone(),
                   larger = first.clone(), share = at::empty({logits.size(0), 1}, at::kDouble);
  for (int64_t n = 0; n < logits.size(0); ++n) {
    const MixedLabel label = UnpackLabel(call.in<int32_t>(1)[n]);
    first.data_ptr<int64_t>()[n] = label.first;
    second.data_ptr<int64_t>()[n] = label.second;
    larger.data_ptr<int64_t>()[n] = label.larger();
    share.data_ptr<double>()[n] = label.share();
  }
  const at::Tensor logs = at::log_softmax(logits, 1);
  const double smoothing = gradient == nullptr ? 0 : call.context.label_smoothing;
  const double at_each = smoothing / static_cast<double>(logits.size(1)), at_label = 1 - smoothing;
  const at::Tensor rest = share.neg().add(1);
  const at::Tensor of_labels =
      logs.gather(1, first).mul(share).add(logs.gather(1, second).mul(rest));
  metrics[0] = -at_label * of_labels.sum().item<double>();
  if (smoothing > 0) metrics[0] -= at_each * logs.sum().item<double>();
  metrics[1] =
      static_cast<double>(logits.argmax(1, /*keepdim=*/true).eq(larger).sum().item<int64_t>());
  if (gradient == nullptr) return absl::OkStatus();
  at::Tensor shares = logs.exp();
  if (smoothing > 0) shares.sub_(at_each);
  shares.scatter_add_(1, first, share.mul(-at_label));
  shares.scatter_add_(1, second, rest.mul(-at_label));
  Matrix(gradient, call.in_shape(0))
      .copy_(shares.div_(static_cast<double>(call.context.step_labels)));
  return absl::OkStatus();
}

absl::Status SoftmaxCrossEntropy(const Call& call) {
  return CrossEntropy(call, call.out(0), call.out<double>(1));
}
absl::Status SoftmaxCrossEntropyEval(const Call& call) {
  return CrossEntropy(call, nullptr, call.out<double>(0));
}

constexpr host::KernelRow kKernels[] = {
    {OpCode::kConvForward, ConvForward},
    {OpCode::kLinearForward, LinearForward},
    {OpCode::kEmbeddingForward, host::EmbeddingForward},
    {OpCode::kLayerNormForward, host::LayerNormForward},
    {OpCode::kLayerNormInputGradient, host::LayerNormInputGradient},
    {OpCode::kSigmoidForward, host::SigmoidForward},
    {OpCode::kSigmoidInputGradient, host::SigmoidInputGradient},
    {OpCode::kHardSigmoidForward, host::HardSigmoidForward},
    {OpCode::kHardSigmoidInputGradient, host::HardSigmoidInputGradient},
    {OpCode::kLeakyReluForward, host::LeakyReluForward},
    {OpCode::kLeakyReluInputGradient, host::LeakyReluInputGradient},
    {OpCode::kMultiply, host::Multiply},
    {OpCode::kFactorGradient, host::FactorGradient},
    {OpCode::kConcatForward, host::ConcatForward},
    {OpCode::kFirstChannels, host::FirstChannels},
    {OpCode::kLastChannels, host::LastChannels},
    {OpCode::kSliceForward, host::SliceForward},
    {OpCode::kSliceInputGradient, host::SliceInputGradient},
    {OpCode::kShuffleForward, host::ShuffleForward},
    {OpCode::kShuffleInputGradient, host::ShuffleInputGradient},
    {OpCode::kGeluForward, host::GeluForward},
    {OpCode::kGeluInputGradient, host::GeluInputGradient},
    {OpCode::kAttentionForward, host::AttentionForward},
    {OpCode::kAttentionInputGradient, host::AttentionInputGradient},
    {OpCode::kBatchNormForward, BatchNormForward},
    {OpCode::kBatchNormEval, BatchNormEval},
    {OpCode::kBatchNormAgain, BatchNormAgain},
    {OpCode::kReluForward, ReluForward},
    {OpCode::kRelu6Forward, Relu6Forward},
    {OpCode::kDropoutForward, host::Dropout},
    {OpCode::kMaxPoolForward, MaxPoolForward},
    {OpCode::kAvgPoolForward, AvgPoolForward},
    {OpCode::kGlobalAvgPoolForward, GlobalAvgPoolForward},
    {OpCode::kAddForward, Add},
    {OpCode::kCopy, host::Copy},
    {OpCode::kSoftmaxCrossEntropy, SoftmaxCrossEntropy},
    {OpCode::kSoftmaxCrossEntropyEval, SoftmaxCrossEntropyEval},
    {OpCode::kConvInputGradient, ConvInputGradient},
    {OpCode::kLinearInputGradient, LinearInputGradient},
    {OpCode::kBatchNormInputGradient, BatchNormInputGradient},
    {OpCode::kReluInputGradient, ReluInputGradient},
    {OpCode::kRelu6InputGradient, Relu6InputGradient},
    {OpCode::kDropoutInputGradient, host::Dropout},
    {OpCode::kMaxPoolInputGradient, MaxPoolInputGradient},
    {OpCode::kAvgPoolInputGradient, AvgPoolInputGradient},
    {OpCode::kGlobalAvgPoolInputGradient, GlobalAvgPoolInputGradient},
    {OpCode::kAccumulate, Add},
    {OpCode::kConvWeightGradient, ConvWeightGradient},
    {OpCode::kLinearWeightGradient, LinearWeightGradient},
    {OpCode::kEmbeddingWeightGradient, host::EmbeddingWeightGradient},
    {OpCode::kBatchNormWeightGradient, BatchNormWeightGradient},
    {OpCode::kOptimizerUpdate, UpdateByOptimizer},
};

}  // namespace

absl::Span<const host::KernelRow> TorchKernels() { return kKernels; }

}  // namespace runnel
