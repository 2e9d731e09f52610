// Convolution and matrix products, LibTorch's.

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mkldnn_convolution.h>
#include <ATen/ops/mm.h>

#include <vector>

#include "kernels/torch/kernel.h"
#include "kernels/torch/placement.h"

namespace runnel::torch_kernels {
namespace {

at::Tensor View(const float* data, std::initializer_list<int64_t> sizes) {
  return at::from_blob(const_cast<float*>(data), sizes);
}

// The strides say channels-last even where sizes of 1 leave it open: LibTorch picks by them.
at::Tensor ViewImage(const float* data, const Image& i) {
  return at::from_blob(const_cast<float*>(data), {i.n, i.c, i.h, i.w},
                       {i.c * i.h * i.w, 1, i.c * i.w, i.c});
}

struct Conv {
  Image x, y;
  Window window;
  int64_t groups = 1;

  Conv(const Call& call, const Shape& x_shape, const Shape& y_shape)
      : x(ImageOf(x_shape)),
        y(ImageOf(y_shape)),
        window(WindowOf(call.instruction->attributes, x_shape)),
        groups(call.instruction->attributes.groups) {}

  bool depthwise() const { return groups > 1 && groups == x.c && groups == y.c; }
  int64_t weights() const { return y.c * (x.c / groups) * window.kh * window.kw; }
  at::Tensor Weight(const float* data) const {
    return View(data, {y.c, x.c / groups, window.kh, window.kw});
  }
  std::array<int64_t, 2> stride() const { return {window.sh, window.sw}; }
  std::array<int64_t, 2> padding() const { return {window.ph, window.pw}; }
};

constexpr std::array<int64_t, 2> kNoDilation = {1, 1};
constexpr std::array<int64_t, 2> kNoOutputPadding = {0, 0};

// Puts a result at its place if LibTorch did not make it there.
void Deliver(const at::Tensor& result, const Image& image, float* target) {
  if (result.data_ptr() == target && result.is_contiguous(at::MemoryFormat::ChannelsLast)) return;
  // Detached from `target` first: a result that lies there in another layout would be overwritten
  // while it is read.
  const at::Tensor source = result.data_ptr() == target ? result.clone() : result;
  ViewImage(target, image).copy_(source);
}

size_t BytesOf(const Image& image) {
  return static_cast<size_t>(image.rows() * image.c) * sizeof(float);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> Backward(const Conv& conv, const at::Tensor& dy,
                                                        const at::Tensor& x,
                                                        const at::Tensor& weight,
                                                        std::array<bool, 3> wanted) {
  return at::convolution_backward(dy, x, weight, c10::nullopt, conv.stride(), conv.padding(),
                                  kNoDilation, /*transposed=*/false, kNoOutputPadding, conv.groups,
                                  wanted);
}

}  // namespace

absl::Status ConvForward(const Call& call) {
  const Conv conv(call, call.in_shape(0), call.out_shape(0));
  if (conv.depthwise()) {
    DepthwiseForward(call);
    return absl::OkStatus();
  }
  c10::optional<at::Tensor> bias;
  if (call.inputs.size() > 2) bias = View(call.in(2), {conv.y.c});
  const Placement placement(call.out(0), BytesOf(conv.y));
  const at::Tensor y =
      at::mkldnn_convolution(ViewImage(call.in(0), conv.x), conv.Weight(call.in(1)), bias,
                             conv.padding(), conv.stride(), kNoDilation, conv.groups);
  Deliver(y, conv.y, call.out(0));
  return absl::OkStatus();
}

absl::Status ConvInputGradient(const Call& call) {
  const Conv conv(call, call.out_shape(0), call.in_shape(0));
  if (conv.depthwise()) {
    DepthwiseInputGradient(call);
    return absl::OkStatus();
  }
  const Placement placement(call.out(0), BytesOf(conv.x));
  // x gives only its shape here; the output's memory has it.
  const auto gradients =
      Backward(conv, ViewImage(call.in(0), conv.y), ViewImage(call.out(0), conv.x),
               conv.Weight(call.in(1)), {true, false, false});
  Deliver(std::get<0>(gradients), conv.x, call.out(0));
  return absl::OkStatus();
}

absl::Status ConvWeightGradient(const Call& call) {
  const Conv conv(call, call.in_shape(1), call.in_shape(0));
  const bool accumulate = call.context->accumulate;
  if (call.outputs.size() > 1) {
    std::vector<float> sums(conv.y.c);
    ColumnSums(call.in(0), conv.y.rows(), conv.y.c, sums.data());
    StoreGradient(sums.data(), conv.y.c, accumulate, call.out(1));
  }
  if (conv.depthwise()) {
    std::vector<float> gradient(conv.weights());
    DepthwiseWeightGradient(call, gradient.data());
    StoreGradient(gradient.data(), conv.weights(), accumulate, call.out(0));
    return absl::OkStatus();
  }
  // The weight gives only its shape; the gradient's memory has it.
  const at::Tensor target = conv.Weight(call.out(0));
  const auto gradients = Backward(conv, ViewImage(call.in(0), conv.y),
                                  ViewImage(call.in(1), conv.x), target, {false, true, false});
  if (accumulate) {
    target.add_(std::get<1>(gradients));
  } else {
    target.copy_(std::get<1>(gradients));
  }
  return absl::OkStatus();
}

absl::Status LinearForward(const Call& call) {
  const int64_t n = call.in_shape(0)[0], in = call.in_shape(0)[1], out = call.out_shape(0)[1];
  at::Tensor y = View(call.out(0), {n, out});
  const at::Tensor x = View(call.in(0), {n, in});
  const at::Tensor weight = View(call.in(1), {out, in}).t();
  if (call.inputs.size() > 2) {
    at::addmm_out(y, View(call.in(2), {out}), x, weight);
  } else {
    at::mm_out(y, x, weight);
  }
  return absl::OkStatus();
}

absl::Status LinearInputGradient(const Call& call) {
  const int64_t n = call.in_shape(0)[0], out = call.in_shape(0)[1], in = call.out_shape(0)[1];
  at::Tensor dx = View(call.out(0), {n, in});
  at::mm_out(dx, View(call.in(0), {n, out}), View(call.in(1), {out, in}));
  return absl::OkStatus();
}

absl::Status LinearWeightGradient(const Call& call) {
  const int64_t n = call.in_shape(0)[0], out = call.in_shape(0)[1], in = call.in_shape(1)[1];
  const bool accumulate = call.context->accumulate;
  // BLAS would add in another order than "the finished gradient is added".
  float* result = call.out(0);
  if (accumulate) result = reinterpret_cast<float*>(call.arena->Get(out * in * sizeof(float)));
  at::Tensor dweight = View(result, {out, in});
  at::mm_out(dweight, View(call.in(0), {n, out}).t(), View(call.in(1), {n, in}));
  StoreGradient(result, out * in, accumulate, call.out(0));
  if (call.outputs.size() > 1) {
    std::vector<float> sums(out);
    ColumnSums(call.in(0), n, out, sums.data());
    StoreGradient(sums.data(), out, accumulate, call.out(1));
  }
  return absl::OkStatus();
}

}  // namespace runnel::torch_kernels
