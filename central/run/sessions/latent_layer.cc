#include "central/run/sessions/latent_layer.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/data/latents/latent_types.h"
#include "partition/import/model_json.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Without the batch.
Shape SampleOf(const Shape& shape) { return Shape::Create(shape.dims().subspan(1)).value(); }

bool IsRewritten(const LayerSpec& layer) {
  for (size_t op = 0; op < layer.ops.size(); ++op) {
    if (layer.freezes(op) || !layer.ops[op].name.empty()) return true;
  }
  return layer.frozen;
}

}  // namespace

absl::StatusOr<int> ParseLatentLayer(absl::string_view text, const ModelSpec& model) {
  int layer = -1;
  if (!absl::SimpleAtoi(text, &layer)) {
    layer = -1;  // it may hold what the text begins with
    const auto named = std::find_if(model.layers.begin(), model.layers.end(),
                                    [&](const LayerSpec& one) { return one.name == text; });
    if (named != model.layers.end()) layer = static_cast<int>(named - model.layers.begin());
  }
  if (layer >= 1 && layer < model.layer_count()) return layer;
  return absl::InvalidArgumentError(absl::StrCat(
      "model ", model.name, " cannot be cut there; give a layer from 1 to ",
      model.layer_count() - 1, " or its name, as runnel-central check MODEL lists them"));
}

absl::StatusOr<std::string> LayerTable(const ModelSpec& model) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> layers, InferShapes(model, 1));
  size_t width = 4;
  for (const LayerSpec& layer : model.layers) width = std::max(width, layer.name.size());
  std::string text =
      absl::StrFormat("%5s  %-*s  %14s", "layer", static_cast<int>(width), "name", "latent");
  for (const LatentType& type : LatentTypes())
    absl::StrAppend(&text, absl::StrFormat("  %10s", absl::StrCat(type.name, " B")));
  absl::StrAppend(&text, absl::StrFormat("  %12s  %13s\n", "params behind", "MMAC behind"));
  int64_t parameters = 0, macs = 0;
  std::vector<std::string> lines(layers.size());
  for (size_t i = layers.size(); i-- > 0;) {
    parameters += layers[i].parameters;
    macs += layers[i].macs;
    const Shape latent = SampleOf(layers[i].input);
    lines[i] = absl::StrFormat("%5d  %-*s  %14s", i, static_cast<int>(width), model.layers[i].name,
                               latent.ToString());
    for (const LatentType& type : LatentTypes())
      absl::StrAppend(&lines[i], absl::StrFormat("  %10d", type.Bytes(latent.elements())));
    absl::StrAppend(&lines[i], absl::StrFormat("  %13d  %12.3f\n", parameters,
                                               static_cast<double>(macs) * 1e-6));
  }
  for (const std::string& line : lines) text += line;
  text.pop_back();  // print ends the line
  return text;
}

absl::StatusOr<ModelSpec> TailOf(const ModelSpec& model, int layer) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  ModelSpec tail;
  tail.name = absl::StrCat(model.name, "_from_", layer);
  tail.input = SampleOf(infos[static_cast<size_t>(layer)].input);
  tail.classes = model.classes;
  tail.layers.assign(model.layers.begin() + layer, model.layers.end());
  for (LayerSpec& one : tail.layers) {
    if (IsRewritten(one)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layer ", one.name, " is frozen, or has a pair of lora; begin with a model without: ",
          "runnel-central train --init-from"));
    }
    one.recompute = false;
  }
  // As the session's run reads it from a file.
  return ModelFromJson(ModelToJson(tail));
}

}  // namespace runnel
