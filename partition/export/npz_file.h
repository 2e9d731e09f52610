#pragma once

// NumPy's files: the tensors of a trained model as its archive. Pure functions, any thread.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"

namespace runnel {

// What stands before the elements, row-major, of a .npy: version 1.0 of the format, a dictionary
// padded to 64 bytes. type: NumPy's name of an element's, "<f4".
std::string NpyHeader(absl::string_view type, absl::Span<const int64_t> dims);

// A zip of one .npy a tensor, "LAYER.TENSOR.npy" ("conv1.0.weight.npy"), in the state's own types:
// FP32, and of integer recipes mantissas and exponents; not compressed. Internal: the library
// cannot make it.
absl::StatusOr<std::string> StateToNpz(const ModelSpec& model, const ModelState& state);

}  // namespace runnel
