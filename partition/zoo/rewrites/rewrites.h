#pragma once

// Rewrites of a model before anything is sent: ModelSpec -> ModelSpec. A worker, a plan and a
// check-point know the rewritten model alone.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

struct RewriteRow {
  absl::string_view name;
  absl::string_view arguments;  // behind the colon, for people: "LAYERS"
  absl::string_view summary;
  // InvalidArgument: the arguments do not fit, or not this model.
  absl::StatusOr<ModelSpec> (*apply)(ModelSpec model, absl::string_view arguments);
};

// The table, one file a row in this folder.
absl::Span<const RewriteRow> Rewrites();

// One after the other, each "NAME:ARGUMENTS"; the model stays one that InferShapes takes.
// InvalidArgument begins with the rewrite; of an unknown name it lists what there is.
absl::StatusOr<ModelSpec> Rewrite(ModelSpec model, const std::vector<std::string>& rewrites);

// ---- the rows

// "N": the first N layers; "A-B": layers A to B, from 0. Their state never steps.
absl::StatusOr<ModelSpec> Freeze(ModelSpec model, absl::string_view layers);

}  // namespace runnel
