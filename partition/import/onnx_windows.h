#pragma once

// Windows of an ONNX graph: kernels, strides, padding by side, dilation, rounding. For onnx_graph.cc.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"
#include "partition/import/onnx_values.h"
#include "proto/base/model/model_spec.h"

namespace runnel::import {

// Zeros around the spatial axes: those in front of each axis, then those behind. Empty: none.
using Pads = std::vector<int64_t>;

// What a window slides over.
struct WindowInput {
  std::vector<int64_t> lengths;  // of the spatial axes; empty: not known
  Pads pads;                     // of a Pad node in front
};

// Kernel, stride, padding and dilation of a node's window over one or two axes. kernel: where the
// node has no attribute for it. InvalidArgument: an attribute that windows here have not.
absl::Status SetWindow(const onnx::NodeProto& node, const WindowInput& input,
                       std::vector<int64_t> kernel, OpSpec& spec);

// A MaxPool or AveragePool, without inputs. Rounded up (ceil_mode), the last window begins inside the
// input or in front of it, as in PyTorch and in ONNX from opset 19 on.
absl::StatusOr<OpSpec> ReadPool(const onnx::NodeProto& node, const WindowInput& input);

// Of a Pad node whose inputs behind the first are `amounts` and `value` (null: not given). All zero:
// empty.
absl::StatusOr<Pads> ReadPads(const onnx::NodeProto& node, const Constant* amounts,
                              const Constant* value);

}  // namespace runnel::import
