#include "partition/zoo/rewrites/named_layers.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace runnel {

absl::StatusOr<LayerRange> ParseLayers(absl::string_view text, const ModelSpec& model,
                                       absl::string_view or_word) {
  LayerRange range;
  const size_t dash = text.find('-');
  const bool is_count = dash == absl::string_view::npos;
  const bool is_right = is_count
                            ? absl::SimpleAtoi(text, &range.last_layer) && --range.last_layer >= 0
                            : absl::SimpleAtoi(text.substr(0, dash), &range.first_layer) &&
                                  absl::SimpleAtoi(text.substr(dash + 1), &range.last_layer) &&
                                  range.first_layer >= 0 && range.first_layer <= range.last_layer;
  if (!is_right) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no number of layers and no range such as 0-5", or_word));
  }
  if (range.last_layer < model.layer_count()) return range;
  return absl::InvalidArgumentError(absl::StrCat("layer ", range.last_layer,
                                                 " is beyond the model, ", model.name,
                                                 " has layers 0 to ", model.layer_count() - 1));
}

}  // namespace runnel
