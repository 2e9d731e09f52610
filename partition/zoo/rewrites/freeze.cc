#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "partition/zoo/rewrites/named_layers.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "proto/base/status_macros.h"

namespace runnel {
absl::StatusOr<ModelSpec> Freeze(ModelSpec model, absl::string_view layers) {
  const int count = model.layer_count();
  const std::string text = layers == "all-but-head" ? absl::StrCat(count - 1) : std::string(layers);
  RUNNEL_ASSIGN_OR_RETURN(const LayerRange range, ParseLayers(text, model, ", nor all-but-head"));
  for (int i = range.first_layer; i <= range.last_layer; ++i) model.layers[i].frozen = true;
  if (std::all_of(model.layers.begin(), model.layers.end(),
                  [](const LayerSpec& layer) { return layer.frozen; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("all ", count, " layers of ", model.name, " would be frozen: nothing trains"));
  }
  if (model.layers.back().frozen) {
    return absl::InvalidArgumentError(absl::StrCat("layer ", count - 1, " (",
                                                   model.layers.back().name,
                                                   ") makes the loss and must be trained"));
  }
  return model;
}

}  // namespace runnel
