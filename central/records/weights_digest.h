#pragma once

// `weights_sha256`: one figure by which two runs, or a run and its replay, are compared.
//
// SHA-256 over all parameters (weight, bias, scale, shift) of all layers in order, then over all
// buffers (running statistics) of all layers in order. A tensor contributes one line of ASCII,
// "<layer>.<name> <dtype> <dim>x<dim>...\n" ("0.0.weight f32 20x1x5x5": layer 0, its state tensor
// "0.weight"), and then its elements, little-endian, row-major. Momentum and encoder state do not
// count. In Python, with tensors as [(layer, name, array), ...] in that order:
//
//   digest = hashlib.sha256()
//   for layer, name, array in parameters + buffers:
//       shape = "x".join(str(d) for d in array.shape)
//       digest.update(f"{layer}.{name} f32 {shape}\n".encode())
//       digest.update(array.astype("<f4").tobytes())
//   print(digest.hexdigest())

#include <string>

#include "absl/strings/string_view.h"
#include "proto/base/model/model_state.h"

namespace runnel {

// 64 lower-case hexadecimal digits. Layers and tensors in the order in which `state` has them. A
// pure function: any thread.
std::string WeightsSha256(const ModelState& state);

// Whether a state tensor ("1.running_mean") is a buffer: a statistic and no parameter.
bool IsBufferName(absl::string_view tensor_name);

}  // namespace runnel
