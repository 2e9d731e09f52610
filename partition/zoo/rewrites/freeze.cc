#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

struct Range {
  int first = 0;
  int last = 0;
};

absl::StatusOr<Range> ParseRange(absl::string_view text) {
  Range range;
  const size_t dash = text.find('-');
  const bool is_count = dash == absl::string_view::npos;
  const bool is_right = is_count ? absl::SimpleAtoi(text, &range.last) && --range.last >= 0
                                 : absl::SimpleAtoi(text.substr(0, dash), &range.first) &&
                                       absl::SimpleAtoi(text.substr(dash + 1), &range.last) &&
                                       range.first >= 0 && range.first <= range.last;
  if (is_right) return range;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is no number of layers and no range such as 0-5"));
}

// The gradient of a batch normalisation whose statistics are fixed is none that recipes have.
absl::Status CheckPassed(const ModelSpec& model, const Range& range) {
  for (int i = std::max(range.first, model.frozen_front()); i <= range.last; ++i) {
    const LayerSpec& layer = model.layers[i];
    const auto is_norm = [](const OpSpec& op) { return op.kind == OpKind::kBatchNorm; };
    if (std::none_of(layer.ops.begin(), layer.ops.end(), is_norm)) continue;
    return absl::InvalidArgumentError(absl::StrCat("layer ", i, " (", layer.name,
                                                   ") has batch norm, and layers before it are ",
                                                   "trained; freeze from layer 0 on"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSpec> Freeze(ModelSpec model, absl::string_view layers) {
  RUNNEL_ASSIGN_OR_RETURN(const Range range, ParseRange(layers));
  const int count = model.layer_count();
  if (range.last >= count) {
    return absl::InvalidArgumentError(absl::StrCat("layer ", range.last, " is beyond the model, ",
                                                   model.name, " has layers 0 to ", count - 1));
  }
  for (int i = range.first; i <= range.last; ++i) model.layers[i].frozen = true;
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
  RUNNEL_RETURN_IF_ERROR(CheckPassed(model, range));
  return model;
}

}  // namespace runnel
