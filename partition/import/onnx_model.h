#pragma once

// A network from PyTorch, Keras or another trainer, as ONNX, and its weights. Pure functions, any
// thread.
//
// Operators that are read: Conv, BatchNormalization, Gemm, MatMul with a constant (and an Add of a
// constant behind it), Relu, Clip at 0 and 6, MaxPool, AveragePool, GlobalAveragePool, ReduceMean
// over the spatial axes, Add of two tensors, Mul of two tensors or by a channel's factor, Concat,
// Split and Slice of channels, Reshape - Transpose - Reshape that shuffles channels, Sigmoid,
// HardSigmoid, HardSwish, LeakyRelu, Gather of a table's rows by tokens with positions added,
// LayerNormalization or the nodes that exporters wrote before it, Gelu, or GELU by tanh or erf in any
// order of its sums and products, self-attention of one projection or of three, with a causal mask or
// none, also with the positions in front of the batch, Flatten, Reshape and Squeeze that only
// flatten, Dropout, Identity, Constant and Shape and what is computed of them, and a Softmax at the
// end, which the loss has. Windows: dilation of convolutions, pads that differ by side, auto_pad,
// ceil_mode, count_include_pad, and a Pad with zeros in front of a Conv or an AveragePool. A 1x1 Conv
// of means over the plane becomes linear. A layer begins at a convolution, a linear operator or an
// embedding wherever one tensor crosses, so that blocks with branches stay whole.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"

namespace runnel {

inline constexpr size_t kMaxOnnxBytes = (size_t{1} << 31) - 1;
// In later ones operators may mean something else.
inline constexpr int64_t kNewestOnnxOpset = 23;

struct OnnxModel {
  ModelSpec model;
  // Weights and statistics in FP32 by layer, no slots. The start of training.
  ModelState state;
};

// Checks bytes from outside. InvalidArgument: no ONNX, an opset over kNewestOnnxOpset, a graph with several inputs, weights in
// another file, or, all of them in one line, what is not supported: node, operator, attribute.
absl::StatusOr<OnnxModel> ModelFromOnnx(absl::string_view bytes);

}  // namespace runnel
