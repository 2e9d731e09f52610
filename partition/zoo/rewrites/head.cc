#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "partition/zoo/rewrites/pair.h"
#include "partition/zoo/rewrites/rewrites.h"

namespace runnel {

absl::StatusOr<ModelSpec> ReplaceHead(ModelSpec model, absl::string_view classes) {
  int64_t count = 0;
  if (!absl::SimpleAtoi(classes, &count) || count < 2)
    return absl::InvalidArgumentError(
        absl::StrCat("'", classes, "' is no number of classes from 2"));
  LayerSpec& layer = model.layers.back();
  if (IsPairOf(layer, layer.ops.size() - 1, kPairSum))
    layer.ops.resize(layer.ops.size() - kPairOps);
  if (layer.ops.back().kind != OpKind::kLinear) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", model.layer_count() - 1, " (", layer.name, ") ends with ",
                     Name(layer.ops.back().kind),
                     "; only a linear operator at the model's end can be replaced"));
  }
  for (size_t op = 0; op < layer.ops.size(); ++op) layer.ops[op].frozen = layer.freezes(op);
  layer.frozen = false;
  layer.ops.back().frozen = false;
  layer.ops.back().out_channels = count;
  model.classes = count;
  return model;
}

}  // namespace runnel
