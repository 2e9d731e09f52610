#pragma once

// Layers that a user names. Private to the rewrites.

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

// "N": the first N layers; "A-B": layers A to B, from 0. InvalidArgument: another text (`or_word`
// ends that line: what else the rewrite takes), or layers that the model has not.
absl::StatusOr<LayerRange> ParseLayers(absl::string_view text, const ModelSpec& model,
                                       absl::string_view or_word = "");

}  // namespace runnel
