#include <algorithm>
#include <utility>

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

namespace {

// How a file is named; empty for other texts.
std::string OwnFileHint(absl::string_view name) {
  for (const auto& [end, prefix] :
       {std::pair<absl::string_view, absl::string_view>{".json", kJsonPrefix},
        {".onnx", kOnnxPrefix}}) {
    if (absl::EndsWith(name, end) && !absl::StartsWith(name, prefix))
      return absl::StrCat("; a file is ", prefix, name);
  }
  return "";
}

}  // namespace

absl::StatusOr<const ModelRow*> FindModel(absl::string_view name) {
  if (absl::StartsWith(name, kJsonPrefix) || absl::StartsWith(name, kOnnxPrefix))
    return &OwnModel();
  for (const ModelRow& row : BuiltinModels()) {
    if (row.name == name) return &row;
  }
  return absl::InvalidArgumentError(absl::StrCat("model '", name, "' is not known",
                                                 OwnFileHint(name), "; there are ",
                                                 absl::StrJoin(ModelNames(), ", ")));
}

absl::StatusOr<ModelSpec> MakeModel(absl::string_view name) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelRow* row, FindModel(name));
  if (row->make != nullptr) return row->make();
  return absl::InvalidArgumentError(absl::StrCat(
      "model '", name,
      "': only models of the zoo can be taken here: ", absl::StrJoin(ModelNames(), ", ")));
}

namespace {

// "; models that take them: mlp", the first few of the zoo for numbers; empty: none does.
std::string ModelsOf(const Shape& sample) {
  constexpr size_t kMostNamed = 4;
  std::vector<absl::string_view> names;
  for (const ModelRow& row : BuiltinModels()) {
    ModelSpec model = row.make();
    if (model.tokens() > 0) continue;  // theirs are no measured numbers
    model.input = sample;
    if (InferShapes(model, 1).ok()) names.push_back(row.name);
    if (names.size() == kMostNamed) break;
  }
  return names.empty() ? "" : absl::StrCat("; models that take them: ", absl::StrJoin(names, ", "));
}

}  // namespace

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
                                                 sample.ToString(), ": ", status.message(),
                                                 ModelsOf(sample)));
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const ModelRow& row : BuiltinModels()) names.emplace_back(row.name);
  return names;
}

}  // namespace runnel
