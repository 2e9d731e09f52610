#include "central/run/own_model.h"

#include <cmath>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "central/run/trained_weights.h"
#include "partition/import/model_json.h"
#include "partition/import/onnx_model.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr size_t kMostListed = 8;

absl::Status Named(absl::string_view flag, absl::string_view file, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--", flag, " ", file, ": ", status.message()));
}

absl::StatusOr<OnnxModel> ReadOnnx(absl::string_view flag, absl::string_view path) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(std::string(path), kMaxOnnxBytes));
  absl::StatusOr<OnnxModel> model = ModelFromOnnx(bytes);
  if (!model.ok()) return Named(flag, absl::StrCat(kOnnxPrefix, path), model.status());
  return model;
}

// The weights of a file, by the names of layer and tensor.
using Given = std::map<std::pair<std::string, std::string>, TensorData>;

Given GivenOf(const ModelSpec& model, ModelState state) {
  Given given;
  for (LayerState& layer : state.layers) {
    const std::string& name = model.layers[static_cast<size_t>(layer.layer)].name;
    for (TensorData& tensor : layer.tensors) given[{name, tensor.name}] = std::move(tensor);
  }
  return given;
}

// The weight's first value that is none; training would only say that it diverged.
absl::Status CheckFinite(const Given& given, absl::string_view file) {
  for (const auto& [name, tensor] : given) {
    if (tensor.dtype != DType::kFloat32) continue;
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    for (const float value : values) {
      if (std::isfinite(value)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": ", name.first, ".", name.second, " holds ", value,
                       ": its training had diverged when it was written"));
    }
  }
  return absl::OkStatus();
}

// Pairs of a check-point are merged for a model without.
absl::StatusOr<Given> ReadGiven(const std::string& init_from, const std::string& model_name,
                                bool has_pairs, Logger* logger) {
  absl::string_view path = init_from.empty() ? model_name : init_from;
  const absl::string_view flag = init_from.empty() ? "model" : "init-from";
  if (absl::ConsumePrefix(&path, kOnnxPrefix)) {
    RUNNEL_ASSIGN_OR_RETURN(OnnxModel onnx, ReadOnnx(flag, path));
    Given given = GivenOf(onnx.model, std::move(onnx.state));
    RUNNEL_RETURN_IF_ERROR(CheckFinite(given, absl::StrCat(kOnnxPrefix, path)));
    return given;
  }
  absl::StatusOr<Checkpoint> checkpoint = NewestWeights(init_from, logger);
  if (!checkpoint.ok()) return Named(flag, path, checkpoint.status());
  if (!has_pairs) RUNNEL_RETURN_IF_ERROR(MergePairs(checkpoint->model, checkpoint->state));
  return GivenOf(checkpoint->model, std::move(checkpoint->state));
}

}  // namespace

absl::StatusOr<ModelSpec> ModelNamed(absl::string_view name) {
  absl::string_view path = name;
  if (absl::ConsumePrefix(&path, kOnnxPrefix)) {
    RUNNEL_ASSIGN_OR_RETURN(OnnxModel onnx, ReadOnnx("model", path));
    return std::move(onnx.model);
  }
  if (!absl::ConsumePrefix(&path, kJsonPrefix)) return MakeModel(name);
  RUNNEL_ASSIGN_OR_RETURN(const std::string text,
                          ReadWholeFile(std::string(path), kMaxModelJsonBytes));
  absl::StatusOr<ModelSpec> model = ModelFromJson(text);
  if (!model.ok()) return Named("model", name, model.status());
  return model;
}

namespace {

// Products that read weights as halves would read the largest value in place of a larger one.
absl::Status CheckRange(const ModelState& state, const RunSetup& setup) {
  const DType type = setup.format.weight;
  if (!IsHalf(type)) return absl::OkStatus();
  for (const LayerState& layer : state.layers) {
    for (const TensorData& tensor : layer.tensors) {
      if (tensor.dtype != DType::kFloat32) continue;
      std::vector<float> values(tensor.bytes.size() / sizeof(float));
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
      for (const float value : values) {
        if (std::fabs(value) <= TypeOf(type).largest) continue;
        const std::string& from = setup.settings.init_from;
        return absl::InvalidArgumentError(absl::StrCat(
            from.empty() ? "--model " : "--init-from ", from.empty() ? setup.settings.model : from,
            ": ", setup.model.layers[static_cast<size_t>(layer.layer)].name, ".", tensor.name,
            " has a value of ", value, ", recipe ", setup.settings.recipe, " holds up to ",
            TypeOf(type).largest, "; take --recipe fp32"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StartWeights> StartOf(const RunSetup& setup, Logger* logger) {
  const std::string& init_from = setup.settings.init_from;
  const std::string& model_name = setup.settings.model;
  const ModelSpec& model = setup.model;
  StartWeights start;
  if (init_from.empty() && !absl::StartsWith(model_name, kOnnxPrefix)) return start;
  RUNNEL_ASSIGN_OR_RETURN(const Given given,
                          ReadGiven(init_from, model_name, HasPairs(model), logger));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  std::vector<std::string> drawn;
  size_t taken = 0;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    const std::string& name = model.layers[static_cast<size_t>(layer)].name;
    const auto find = [&](const StateTensorSpec& spec) -> const TensorData* {
      const auto found = given.find({name, spec.name});
      const bool fits =
          found != given.end() && found->second.shape == spec.shape &&
          (found->second.dtype == spec.dtype || found->second.dtype == DType::kFloat32);
      taken += fits ? 1 : 0;
      if (!fits && !IsOfRecipe(spec.role))
        drawn.push_back(absl::StrCat(name, ".", spec.name, " (", spec.shape.ToString(), ")"));
      return fits ? &found->second : nullptr;
    };
    start.state.layers.push_back(InitialLayer(model, infos[static_cast<size_t>(layer)], layer,
                                              setup.settings.training.seed, setup.format, find));
  }
  const std::string from = init_from.empty() ? model_name : init_from;
  if (taken == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--init-from ", from, ": no tensor has the layer, name and shape of one of ", model.name));
  }
  RUNNEL_RETURN_IF_ERROR(CheckRange(start.state, setup));
  if (drawn.empty()) return start;
  const size_t count = drawn.size();
  if (count > kMostListed) drawn.resize(kMostListed);
  start.note =
      absl::StrCat(from, ": ", taken, " tensors are taken, ", count,
                   " are drawn: ", absl::StrJoin(drawn, ", "), count > kMostListed ? ", ..." : "");
  return start;
}

}  // namespace runnel
