#pragma once

// A model in integers as ONNX, for the engine that deploys it. Pure functions, any thread.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// real = scale * (code - zero), codes within +-max_code.
struct CodeRange {
  double scale = 1;
  int32_t zero = 0;
  int32_t max_code = 127;
};

// One node of a file model.q8: the numbers and their order are those of proto/inference.proto.
struct IntegerNode {
  enum class Kind : uint8_t {
    kInput = 1,
    kConv = 2,
    kMaxPool = 3,
    kAvgPool = 4,
    kAdd = 5,
    kClamp = 6,
    kFlatten = 7
  };
  enum class Clamp : uint8_t { kNone = 0, kRelu = 1, kRelu6 = 2 };

  Kind kind = Kind::kInput;
  std::vector<int32_t> inputs;
  Clamp clamp = Clamp::kNone;
  std::array<int64_t, 6> window = {};  // kernel, stride, padding, each height and width
  int64_t out_channels = 0;
  int64_t groups = 1;
  CodeRange codes;  // of the output
  // Of a convolution: int8, (out, height, width, in / groups), and by output channel. A sum times its
  // factor is a code of the output, or a logit.
  std::string weights;
  std::vector<int32_t> weight_zeros;  // or none
  std::vector<int32_t> bias;
  std::vector<double> factors;
  bool gives_logits = false;
  std::vector<float> real_weights;  // in place of these
  std::vector<float> real_bias;
};

// Serialized onnx.ModelProto of opset 13 in the form that engines call QDQ: input "input"
// (batch, sample...) and output "logits" (batch, classes) in FP32. Weights are int8 initializers with
// a scale for each output channel, biases int32; each value becomes int8 in a QuantizeLinear,
// is clipped to the codes that it may have, and its readers undo the QuantizeLinear. batch: as ModelToOnnx. nodes[0]: the
// samples. InvalidArgument names the node and what does not fit.
absl::StatusOr<std::string> QuantizedToOnnx(const std::string& name, const Shape& sample,
                                            absl::Span<const IntegerNode> nodes, int64_t batch = 0);

}  // namespace runnel
