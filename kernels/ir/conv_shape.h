#pragma once

// Sizes of one convolution or window.

#include <cstdint>

namespace runnel {

// All counts in elements. Activations are NHWC, weights OHWI: (out_c, kernel_h, kernel_w,
// in_c / groups). A 1-D convolution has in_h = out_h = kernel_h = stride_h = 1 and pad_h = 0; a
// linear layer is a 1x1 convolution with in_h = in_w = 1.
// pad_h and pad_w are in front; behind lies what out_h and out_w leave. No dilation.
struct ConvShape {
  int64_t batch = 1;
  int64_t in_h = 1, in_w = 1, in_c = 1;
  int64_t out_h = 1, out_w = 1, out_c = 1;
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_h = 0, pad_w = 0;
  int64_t groups = 1;

  int64_t group_in() const { return in_c / groups; }
  int64_t group_out() const { return out_c / groups; }
  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t in_elements() const { return batch * in_h * in_w * in_c; }
  int64_t out_elements() const { return batch * out_h * out_w * out_c; }
  int64_t weight_elements() const { return out_c * taps() * group_in(); }
  // Multiply-accumulates of each of the three passes, taps over padding included.
  int64_t macs() const { return out_elements() * taps() * group_in(); }
  bool depthwise() const { return groups > 1 && groups == in_c && groups == out_c; }
};

}  // namespace runnel
