#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/zoo/layer_builder.h"
#include "partition/zoo/models.h"
#include "partition/zoo/zoo.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::Span<const ModelRow> BuiltinModels() {
  using zoo::kWithNorm, zoo::kWithoutNorm;
  static const TrainingDefaults cifar = zoo::CifarDefaults(kWithNorm);
  static const TrainingDefaults imagenet = zoo::ImageNetDefaults(kWithNorm);
  static const ModelRow kRows[] = {
#include "partition/zoo/models.inc"
  };
  return kRows;
}

const ModelRow& OwnModel() {
  static const ModelRow row = {"own",
                               "a network of your own",
                               "",
                               nullptr,
                               {.batch_size = 32,
                                .epochs = 10,
                                .learning_rate = 0.01,
                                .momentum = 0.9,
                                .weight_decay = 1e-4,
                                .milestones = {8},
                                .milestone_epochs = 10}};
  return row;
}

absl::StatusOr<const ModelRow*> FindModel(absl::string_view name) {
  if (absl::StartsWith(name, kJsonPrefix) || absl::StartsWith(name, kOnnxPrefix))
    return &OwnModel();
  for (const ModelRow& row : BuiltinModels()) {
    if (row.name == name) return &row;
  }
  return absl::InvalidArgumentError(absl::StrCat("model '", name, "' is not known; there are ",
                                                 absl::StrJoin(ModelNames(), ", ")));
}

absl::StatusOr<ModelSpec> MakeModel(absl::string_view name) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelRow* row, FindModel(name));
  if (row->make != nullptr) return row->make();
  return absl::InvalidArgumentError(absl::StrCat(
      "model '", name,
      "': only models of the zoo can be taken here: ", absl::StrJoin(ModelNames(), ", ")));
}

absl::StatusOr<ModelSpec> ModelFor(ModelSpec model, const Shape& sample, int64_t classes) {
  const bool has_classes = model.classes == classes;
  model.input = sample;
  model.classes = classes;
  std::vector<OpSpec>& ops = model.layers.back().ops;
  const auto last = std::find_if(ops.rbegin(), ops.rend(),
                                 [](const OpSpec& op) { return op.kind == OpKind::kLinear; });
  if (last != ops.rend()) {
    last->out_channels = classes;
  } else if (!has_classes) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name, ": its last layer has no linear operator to adapt"));
  }
  const absl::Status status = InferShapes(model, 1).status();
  if (status.ok()) return model;
  return absl::InvalidArgumentError(absl::StrCat("model ", model.name, " for samples of ",
                                                 sample.ToString(), ": ", status.message()));
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const ModelRow& row : BuiltinModels()) names.emplace_back(row.name);
  return names;
}

}  // namespace runnel
