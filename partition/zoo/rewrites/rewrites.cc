#include "partition/zoo/rewrites/rewrites.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

absl::StatusOr<ModelSpec> Apply(ModelSpec model, absl::string_view rewrite) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(rewrite, absl::MaxSplits(':', 1));
  for (const RewriteRow& row : Rewrites()) {
    if (row.name == parts.first) return row.apply(std::move(model), parts.second);
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
  };
  return kRows;
}

absl::StatusOr<ModelSpec> Rewrite(ModelSpec model, const std::vector<std::string>& rewrites) {
  for (const std::string& rewrite : rewrites) {
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
