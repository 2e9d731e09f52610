#include "partition/import/model_json.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/printable.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"

namespace runnel {
namespace {

constexpr absl::string_view kFormat = "runnel-model";
constexpr int64_t kVersion = 1;

constexpr std::pair<InitKind, absl::string_view> kInits[] = {
    {InitKind::kUniformFanIn, "uniform_fan_in"},
    {InitKind::kNormalFanOut, "normal_fan_out"},
    {InitKind::kNormal, "normal"},
    {InitKind::kXavierNormal, "xavier_normal"},
};

using Axes = std::array<int64_t, 2>;

bool HasBias(OpKind kind) { return kind == OpKind::kConv || kind == OpKind::kLinear; }
bool IsTable(OpKind kind) { return kind == OpKind::kEmbedding; }
bool HasWeights(OpKind kind) { return HasBias(kind) || IsTable(kind); }
bool IsConv(OpKind kind) { return kind == OpKind::kConv; }
bool IsSlice(OpKind kind) { return kind == OpKind::kSlice; }
bool IsMean(OpKind kind) { return kind == OpKind::kAvgPool; }
bool HasOut(OpKind kind) { return HasWeights(kind) || IsSlice(kind); }
bool HasGroups(OpKind kind) { return IsConv(kind) || kind == OpKind::kShuffle; }
bool IsAttention(OpKind kind) { return kind == OpKind::kAttention; }
bool IsGelu(OpKind kind) { return kind == OpKind::kGelu; }
bool IsNorm(OpKind kind) { return kind == OpKind::kBatchNorm; }
bool Normalises(OpKind kind) { return IsNorm(kind) || kind == OpKind::kLayerNorm; }
bool HasRate(OpKind kind) { return kind == OpKind::kDropout || kind == OpKind::kLeakyRelu; }
bool HasWindow(OpKind kind) { return IsConv(kind) || IsMean(kind) || kind == OpKind::kMaxPool; }

// A field of an operator, and which kinds have it.
struct OpField {
  absl::string_view key;
  bool (*is_of)(OpKind kind);
  int64_t OpSpec::*count = nullptr;
  Axes OpSpec::*axes = nullptr;
  bool OpSpec::*flag = nullptr;
  double OpSpec::*real = nullptr;
};
constexpr OpField kOpFields[] = {
    {"rows", IsTable, &OpSpec::rows},
    {"positions", IsTable, nullptr, nullptr, &OpSpec::positions},
    {"heads", IsAttention, &OpSpec::heads},
    {"bidirectional", IsAttention, nullptr, nullptr, &OpSpec::bidirectional},
    {"exact", IsGelu, nullptr, nullptr, &OpSpec::exact},
    {"out", HasOut, &OpSpec::out_channels},
    {"begin", IsSlice, &OpSpec::begin},
    {"kernel", HasWindow, nullptr, &OpSpec::kernel},
    {"stride", HasWindow, nullptr, &OpSpec::stride},
    {"padding", HasWindow, nullptr, &OpSpec::padding},
    {"padding_end", HasWindow, nullptr, &OpSpec::padding_end},
    {"dilation", IsConv, nullptr, &OpSpec::dilation},
    {"counts_padding", IsMean, nullptr, nullptr, &OpSpec::counts_padding},
    {"groups", HasGroups, &OpSpec::groups},
    {"bias", HasBias, nullptr, nullptr, &OpSpec::bias},
    {"rate", HasRate, nullptr, nullptr, nullptr, &OpSpec::rate},
    {"epsilon", Normalises, nullptr, nullptr, nullptr, &OpSpec::epsilon},
    {"momentum", IsNorm, nullptr, nullptr, nullptr, &OpSpec::momentum},
    {"init_std", HasWeights, nullptr, nullptr, nullptr, &OpSpec::init_std},
};

absl::Status ReadAxes(const Json& json, absl::string_view key, Axes& out) {
  if (!json.is_array()) {
    RUNNEL_RETURN_IF_ERROR(ReadValue(json, key, out[0]));
    out[1] = out[0];
    return absl::OkStatus();
  }
  std::vector<int64_t> values;
  RUNNEL_RETURN_IF_ERROR(ReadValue(json, key, values));
  if (values.size() != out.size())
    return absl::InvalidArgumentError(absl::StrCat("'", key, "' must be a number or two"));
  std::copy(values.begin(), values.end(), out.begin());
  return absl::OkStatus();
}

Json AxesJson(const Axes& axes) {
  return axes[0] == axes[1] ? Json(axes[0]) : Json::array({axes[0], axes[1]});
}

absl::Status ReadInit(const Json& json, InitKind& out) {
  std::string name;
  RUNNEL_RETURN_IF_ERROR(ReadValue(json, "init", name));
  for (const auto& [init, text] : kInits) {
    if (text != name) continue;
    out = init;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'init' ", name.substr(0, 40),
                   ": there are uniform_fan_in, normal_fan_out, normal, "
                   "xavier_normal"));
}

// The values that operator `index` reads unless it says so: the one before, and 0 for all of the
// first operator.
absl::Status ReadInputs(const Json* json, size_t index, OpSpec& op) {
  op.inputs = {static_cast<int32_t>(index)};
  if (json == nullptr) return absl::OkStatus();
  std::vector<int64_t> values(1);
  RUNNEL_RETURN_IF_ERROR(json->is_array() ? ReadValue(*json, "from", values)
                                          : ReadValue(*json, "from", values[0]));
  op.inputs.clear();
  for (const int64_t value : values) {
    if (value < 0 || value > static_cast<int64_t>(index))
      return absl::InvalidArgumentError(absl::StrCat("'from' ", value, ": reads no earlier value"));
    op.inputs.push_back(static_cast<int32_t>(value));
  }
  return absl::OkStatus();
}

const Json* Optional(const Json& json, absl::string_view key, JsonObject& object) {
  return json.is_object() && json.contains(std::string(key)) ? object.Find(key) : nullptr;
}

absl::StatusOr<OpSpec> ReadOp(const Json& json, size_t index) {
  OpSpec op;
  JsonObject object(json, absl::StrCat("op ", index));
  std::string name;
  object.Read("op", name);
  if (const absl::StatusOr<OpKind> kind = OpKindFromName(name); kind.ok()) {
    op.kind = *kind;
  } else {
    object.Note(kind.status());
  }
  if (HasOut(op.kind)) object.Find("out");  // must be there
  for (const OpField& field : kOpFields) {
    if (!field.is_of(op.kind)) continue;
    const Json* value = Optional(json, field.key, object);
    if (value == nullptr) continue;
    if (field.count != nullptr) object.Note(ReadValue(*value, field.key, op.*field.count));
    if (field.axes != nullptr) object.Note(ReadAxes(*value, field.key, op.*field.axes));
    if (field.flag != nullptr) object.Note(ReadValue(*value, field.key, op.*field.flag));
    if (field.real != nullptr) object.Note(ReadValue(*value, field.key, op.*field.real));
  }
  if (HasWeights(op.kind)) {
    if (const Json* init = Optional(json, "init", object)) object.Note(ReadInit(*init, op.init));
  }
  object.Note(ReadInputs(Optional(json, "from", object), index, op));
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return op;
}

absl::StatusOr<LayerSpec> ReadLayer(const Json& json, size_t index) {
  LayerSpec layer;
  JsonObject object(json, absl::StrCat("layer ", index));
  object.Read("name", layer.name);
  const Json& ops = object.Array("ops");
  for (size_t i = 0; i < std::min<size_t>(ops.size(), kMaxOpsPerLayer + 1); ++i) {
    absl::StatusOr<OpSpec> op = ReadOp(ops[i], i);
    if (!op.ok()) object.Note(op.status());
    if (op.ok()) layer.ops.push_back(*std::move(op));
  }
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return layer;
}

// Weights are found by the names of their layers.
absl::Status CheckNames(const ModelSpec& model) {
  std::set<absl::string_view> names;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const std::string& name = model.layers[i].name;
    if (name.empty())
      return absl::InvalidArgumentError(absl::StrCat("model: layer ", i, ": has an empty name"));
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat("model: layer ", i, ": its name '", name,
                                                     "' is that of an earlier layer; give each "
                                                     "layer a name of its own"));
    }
  }
  return absl::OkStatus();
}

Json OpJson(const OpSpec& op, size_t index) {
  static const OpSpec kDefaults;
  Json json = {{"op", Name(op.kind)}};
  if (op.inputs != std::vector<int32_t>{static_cast<int32_t>(index)})
    json["from"] = op.inputs.size() == 1 ? Json(op.inputs[0]) : Json(op.inputs);
  for (const OpField& field : kOpFields) {
    if (!field.is_of(op.kind)) continue;
    Json value;
    if (field.count != nullptr && op.*field.count != kDefaults.*field.count)
      value = op.*field.count;
    if (field.axes != nullptr && op.*field.axes != kDefaults.*field.axes)
      value = AxesJson(op.*field.axes);
    if (field.flag != nullptr && op.*field.flag != kDefaults.*field.flag) value = op.*field.flag;
    if (field.real != nullptr && op.*field.real != kDefaults.*field.real) value = op.*field.real;
    if (!value.is_null()) json[std::string(field.key)] = std::move(value);
  }
  if (HasWeights(op.kind) && op.init != kDefaults.init) {
    const auto found = std::find_if(std::begin(kInits), std::end(kInits),
                                    [&op](const auto& row) { return row.first == op.init; });
    json["init"] = found->second;
  }
  return json;
}

absl::StatusOr<ModelSpec> ReadModelJson(absl::string_view text) {
  if (text.size() > kMaxModelJsonBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: over the limit of ", kMaxModelJsonBytes, " bytes"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  ModelSpec model;
  JsonObject object(json, "model");
  std::vector<int64_t> input;
  object.Format(kFormat, kVersion)
      .Read("name", model.name)
      .Read("input", input)
      .Read("classes", model.classes);
  const Json& layers = object.Array("layers");
  for (size_t i = 0; i < std::min<size_t>(layers.size(), kMaxLayers + 1); ++i) {
    absl::StatusOr<LayerSpec> layer = ReadLayer(layers[i], i);
    if (!layer.ok()) object.Note(layer.status());
    if (layer.ok()) model.layers.push_back(*std::move(layer));
  }
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  RUNNEL_RETURN_IF_ERROR(CheckNames(model));
  RUNNEL_ASSIGN_OR_RETURN(model.input, Shape::Create(input));
  RUNNEL_RETURN_IF_ERROR(InferShapes(model, 1).status());
  return model;
}

}  // namespace

absl::StatusOr<ModelSpec> ModelFromJson(absl::string_view json) {
  absl::StatusOr<ModelSpec> model = ReadModelJson(json);
  if (model.ok()) return model;
  // Names of layers may hold line ends.
  return OneLine(model.status());
}

std::string ModelToJson(const ModelSpec& model) {
  Json head = {{"format", kFormat},
               {"version", kVersion},
               {"name", model.name},
               {"input", model.input.dims()},
               {"classes", model.classes}};
  std::vector<Json> layers;
  for (const LayerSpec& layer : model.layers) {
    Json ops = Json::array();
    for (size_t i = 0; i < layer.ops.size(); ++i) ops.push_back(OpJson(layer.ops[i], i));
    layers.push_back({{"name", layer.name}, {"ops", std::move(ops)}});
  }
  return DumpRows(head, "layers", layers);
}

}  // namespace runnel
