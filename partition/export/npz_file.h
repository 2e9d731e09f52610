#pragma once

// The tensors of a trained model as NumPy's archive. Pure functions, any thread.

#include <string>

#include "absl/status/statusor.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"

namespace runnel {

// A zip of one .npy a tensor, "LAYER.TENSOR.npy" ("conv1.0.weight.npy"), in the state's own types:
// FP32, and of integer recipes mantissas and exponents; not compressed. Internal: the library
// cannot make it.
absl::StatusOr<std::string> StateToNpz(const ModelSpec& model, const ModelState& state);

}  // namespace runnel
