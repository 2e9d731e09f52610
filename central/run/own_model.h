#pragma once

// Networks and weights that come from files: --model json:FILE and onnx:FILE, --init-from.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/run/run_setup.h"
#include "proto/base/log.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"

namespace runnel {

// The model of the zoo, of "json:FILE" or "onnx:FILE". InvalidArgument: there is none of this name,
// or names the file and what is wrong in it.
absl::StatusOr<ModelSpec> ModelNamed(absl::string_view name);

// With what training begins.
struct StartWeights {
  ModelState state;  // all layers; empty: drawn from the seed
  std::string note;  // which tensors did not fit and are drawn, a line for people
};

// What --init-from names, a folder of check-points or "onnx:FILE", else what --model onnx:FILE
// brings. Tensors of the same layer's name, name and shape are taken, the others drawn from
// the seed; integer recipes take FP32 weights as they take draws. Errors name the flag and file;
// InvalidArgument too if nothing fits.
absl::StatusOr<StartWeights> StartOf(const RunSetup& setup, Logger* logger);

}  // namespace runnel
