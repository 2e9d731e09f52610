#include "partition/zoo/rewrites/named_layers.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<ModelSpec> MarkRecomputed(ModelSpec model, absl::string_view layers) {
  RUNNEL_ASSIGN_OR_RETURN(const LayerRange range, ParseLayers(layers, model));
  for (int i = range.first_layer; i <= range.last_layer; ++i) model.layers[i].recompute = true;
  return model;
}

}  // namespace runnel
