#include "partition/zoo/rewrites/rewrites.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// The gradient of a batch normalisation whose statistics are fixed is none that recipes have.
absl::Status CheckNorms(const ModelSpec& model) {
  for (int i = model.frozen_front(); i < model.layer_count(); ++i) {
    const LayerSpec& layer = model.layers[i];
    for (size_t op = 0; op < layer.ops.size(); ++op) {
      if (layer.ops[op].kind != OpKind::kBatchNorm || !layer.freezes(op)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "layer ", i, " (", layer.name, ") has batch norm that is frozen, and what is ",
          "before it trains; freeze from layer 0 on"));
    }
  }
  return absl::OkStatus();
}

// Behind the rows, whose order in the table is theirs in use.
size_t PlaceOf(const std::string& rewrite) {
  const absl::string_view name = absl::string_view(rewrite).substr(0, rewrite.find(':'));
  size_t place = 0;
  while (place < Rewrites().size() && Rewrites()[place].name != name) ++place;
  return place;
}

absl::StatusOr<ModelSpec> Apply(ModelSpec model, absl::string_view rewrite) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(rewrite, absl::MaxSplits(':', 1));
  for (const RewriteRow& row : Rewrites()) {
    if (row.name != parts.first) continue;
    RUNNEL_ASSIGN_OR_RETURN(model, row.apply(std::move(model), parts.second));
    RUNNEL_RETURN_IF_ERROR(CheckNorms(model));
    return model;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no such rewrite; there are ",
                   absl::StrJoin(Rewrites(), ", ", [](std::string* out, const RewriteRow& row) {
                     absl::StrAppend(out, row.name, ":", row.arguments);
                   })));
}

}  // namespace

absl::Span<const RewriteRow> Rewrites() {
  static constexpr RewriteRow kRows[] = {
      {"freeze", "LAYERS", "layers whose weights stay as they are: the first N, or A-B", Freeze},
      {"lora", "RANK",
       "a trained pair of thin layers beside the linear ones of attention, or beside all where "
       "there is none; what was there is frozen",
       AddPairs},
      {"head", "CLASSES", "another number of classes: the last layer is new, and trained",
       ReplaceHead},
  };
  return kRows;
}

absl::StatusOr<ModelSpec> Rewrite(ModelSpec model, const std::vector<std::string>& rewrites) {
  std::vector<std::string> ordered = rewrites;
  std::stable_sort(ordered.begin(), ordered.end(), [](const std::string& a, const std::string& b) {
    return PlaceOf(a) < PlaceOf(b);
  });
  for (const std::string& rewrite : ordered) {
    absl::StatusOr<ModelSpec> rewritten = Apply(std::move(model), rewrite);
    if (!rewritten.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(rewrite, ": ", rewritten.status().message()));
    }
    model = *std::move(rewritten);
  }
  RUNNEL_RETURN_IF_ERROR(InferShapes(model, 1).status());
  return model;
}

}  // namespace runnel
