#pragma once

// A model as JSON, for people who bring their own network:
//
//   {"format": "runnel-model", "version": 1, "name": "mine", "input": [3, 32, 32], "classes": 10,
//    "layers": [
//     {"name": "conv1", "ops": [{"op": "conv", "out": 16, "kernel": 3, "padding": 1}, {"op": "relu"}]},
//     {"name": "block", "ops": [{"op": "conv", "out": 16, "kernel": 3, "padding": 1},
//                               {"op": "add", "from": [1, 0]}]},
//     ...]}
//
// A layer is what may be cut off; its operators and their fields are OpSpec's
// (proto/base/model/model_spec.h): out (channels or features), kernel, stride, padding, padding_end
// and dilation (a number or one by axis), groups, begin, counts_padding, bias, rate, epsilon,
// momentum, init, init_std. from: the values that an
// operator reads, 0 the layer's input, j + 1 the output of operator j; left out, the value before.
// Pure functions, any thread.

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

inline constexpr size_t kMaxModelJsonBytes = size_t{16} << 20;

// Checks text from outside. InvalidArgument names the layer, the operator and what is wrong with
// it: an unknown operator or field, a type, a shape that does not fit (InferShapes).
absl::StatusOr<ModelSpec> ModelFromJson(absl::string_view json);
// ModelFromJson reads it back to an equal model. A layer a line.
std::string ModelToJson(const ModelSpec& model);

}  // namespace runnel
