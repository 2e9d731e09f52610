#pragma once

// A trained model as ONNX, for the engine that deploys it. Pure functions, any thread.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"

namespace runnel {

// Serialized onnx.ModelProto of opset 13, or 10 where there is a ReLU6, whose limits OpenCV 4.6 reads
// as attributes: input "input" (batch, sample...), output "logits" (batch,
// classes), a node an operator. Of a model of tokens opset 17: int64 "input" (batch, positions),
// "logits" (batch, positions, classes), several nodes an attention or GELU. Batch norms have the
// running statistics, dropouts are left out: it evaluates. Initializers are named "LAYER.TENSOR"
// ("conv1.0.weight"). batch: of its border, which some engines read only as a number; 0: any.
// InvalidArgument: `state` is not the model's in FP32 (a recipe of integers keeps other numbers), or
// over protobuf's 2 GiB.
absl::StatusOr<std::string> ModelToOnnx(const ModelSpec& model, const ModelState& state,
                                        int64_t batch = 0);

// A property of a model's metadata, to stand behind a serialized model: messages of protobuf that
// follow one another are one.
std::string OnnxMetadata(const std::string& key, const std::string& value);

}  // namespace runnel
