#pragma once

// What a trained model is for inference: a list of nodes in the order in which they are computed. A
// node has one output, which later nodes read. Shared by the FP32 graph (folded_graph.h) and the
// INT8 graph (int8_graph.h).

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ir/conv_shape.h"

namespace runnel::inference {

// The numbers are file format: never reuse one.
enum class NodeKind : uint8_t {
  kInput = 1,    // the samples; the first node, and no other
  kConv = 2,     // also linear layers (a 1x1 convolution of one position) and batch norms that were
                 // not folded (a 1x1 depthwise convolution)
  kMaxPool = 3,  // padding never wins
  kAvgPool = 4,  // no padding; also the mean over all positions
  kAdd = 5,      // two inputs of equal shape
  kClamp = 6,    // a ReLU that no other node could take
  kFlatten = 7,  // (C, H, W) -> C * H * W features, channels outermost
};
absl::string_view Name(NodeKind kind);

// What the node does with its result, last. The numbers are file format.
enum class Clamp : uint8_t { kNone = 0, kRelu = 1, kRelu6 = 2 };

struct Node {
  NodeKind kind = NodeKind::kInput;
  // Positions in the list, before this node's. kInput has none, kAdd two, all others the first.
  std::array<int32_t, 2> inputs = {-1, -1};
  Clamp clamp = Clamp::kNone;
  // The operator that it comes from, for people.
  int32_t layer = 0;
  int32_t op = 0;
  // One sample. Of kConv all fields; of pools kernel, stride and padding; of all others in_*, out_*
  // alone. Activations are NHWC; signals have in_h = out_h = 1.
  ConvShape shape;

  int input_count() const { return kind == NodeKind::kInput ? 0 : kind == NodeKind::kAdd ? 2 : 1; }
  int64_t outputs() const { return shape.out_elements(); }
  friend bool operator==(const Node& a, const Node& b);
};

// No value of one sample is larger.
inline constexpr int64_t kMaxValueElements = int64_t{1} << 28;
inline constexpr int kMaxNodes = 1 << 16;

// Checks that node `at` can stand behind nodes[0, at), and derives in_* and out_* of its shape from
// them (of kInput: in_* from out_*; of kConv out_c is given). InvalidArgument says what does not
// fit: an input that is not there, sizes out of range, windows larger than their input, unequal
// operands.
absl::Status InferNode(absl::Span<const Node> before, Node& node);

}  // namespace runnel::inference
