#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/zoo/rewrites/rewrites.h"

namespace runnel {
namespace {

// As codecs and recipes name it.
absl::string_view StashName(const NumberType& type) {
  return type.dtype == DType::kFloat16 ? "fp16" : type.name;
}

}  // namespace

absl::StatusOr<ModelSpec> WithStash(ModelSpec model, absl::string_view type) {
  std::vector<absl::string_view> names;
  for (const NumberType& row : NumberTypes()) {
    if (row.kind != NumberKind::kFloat || row.dtype == DType::kFloat32) continue;
    names.push_back(StashName(row));
    if (names.back() != type) continue;
    for (LayerSpec& layer : model.layers) layer.stash = row.dtype;
    return model;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("activations are kept as ", absl::StrJoin(names, ", "), ", or off"));
}

}  // namespace runnel
