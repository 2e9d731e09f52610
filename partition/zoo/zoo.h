#pragma once

// The models that Runnel brings along, exactly as the papers train them.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/training/codecs/bit_switches.h"
#include "proto/base/training/training_defaults.h"

namespace runnel {

struct ModelRow {
  absl::string_view name;
  absl::string_view summary;
  absl::string_view default_dataset;  // empty: none that Runnel brings along fits
  ModelSpec (*make)();
  TrainingDefaults defaults;
  // `profile` measures the model unless it is told which ones, with 1 / profile_divisor of its
  // batch size; 0: it does not.
  int64_t profile_divisor = 0;
  BitSwitches bit_switches = {};  // bits of --bits accept and bandwidth
};

// The table, zoo/models.inc.
absl::Span<const ModelRow> BuiltinModels();
// Of "json:FILE" and "onnx:FILE", networks of the user's own: defaults that suit small ones; it has
// no `make`.
const ModelRow& OwnModel();
inline constexpr absl::string_view kJsonPrefix = "json:";
inline constexpr absl::string_view kOnnxPrefix = "onnx:";
// Of the zoo, or OwnModel. InvalidArgument lists what there is.
absl::StatusOr<const ModelRow*> FindModel(absl::string_view name);
// InvalidArgument: not of the zoo.
absl::StatusOr<ModelSpec> MakeModel(absl::string_view name);
std::vector<std::string> ModelNames();
// The model for other samples and classes: the same layers, the last one with as many outputs as
// there are classes. InvalidArgument names the layer that cannot take the samples.
absl::StatusOr<ModelSpec> ModelFor(ModelSpec model, const Shape& sample, int64_t classes);

}  // namespace runnel
