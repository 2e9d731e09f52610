#include "predictor/networks/network_file.h"

#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"

namespace runnel {
namespace {

constexpr absl::string_view kFormat = "runnel-network";
constexpr int64_t kVersion = 3;
constexpr size_t kMaxName = 100;
// So that a float is read back exactly.
constexpr int kDigits = 9;

struct LayerField {
  absl::string_view key;
  LinearLayer Mlp::*layer;
};
constexpr std::array<LayerField, 4> kLayers = {{{"encoding_1", &Mlp::encoding_1},
                                                {"encoding_2", &Mlp::encoding_2},
                                                {"joint_1", &Mlp::joint_1},
                                                {"joint_2", &Mlp::joint_2}}};

struct VectorField {
  absl::string_view key;
  std::vector<float> Mlp::*values;
};
constexpr std::array<VectorField, 4> kVectors = {{{"encoding_mean", &Mlp::encoding_mean},
                                                  {"encoding_scale", &Mlp::encoding_scale},
                                                  {"hardware_mean", &Mlp::hardware_mean},
                                                  {"hardware_scale", &Mlp::hardware_scale}}};

Json ToJson(absl::Span<const float> values) {
  Json json = Json::array();
  for (const float value : values) json.push_back(Rounded(value, kDigits));
  return json;
}

Json ToJson(const Mlp& mlp) {
  Json json = Json::object();
  for (const VectorField& field : kVectors)
    json[std::string(field.key)] = ToJson(mlp.*field.values);
  json["output"] = ToJson({mlp.output_mean, mlp.output_scale});
  for (const LayerField& field : kLayers) {
    const LinearLayer& layer = mlp.*field.layer;
    json[std::string(field.key)] = {{"weights", ToJson(layer.weights)},
                                    {"bias", ToJson(layer.bias)}};
  }
  return json;
}

// As many outputs as biases; CheckMlp compares the sizes.
absl::Status ReadLayer(const Json& json, absl::string_view key, LinearLayer& layer) {
  JsonObject object(json, key);
  object.Read("weights", layer.weights).Read("bias", layer.bias);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  const size_t outputs = layer.bias.size();
  if (outputs == 0 || outputs > kMaxMlpWidth || layer.weights.size() / outputs > kMaxMlpWidth ||
      layer.weights.size() % outputs != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": ", layer.weights.size(), " weights do not make ", outputs, " rows"));
  }
  layer.outputs = static_cast<int>(outputs);
  layer.inputs = static_cast<int>(layer.weights.size() / outputs);
  return absl::OkStatus();
}

absl::StatusOr<Mlp> ReadMlp(const Json& json) {
  Mlp mlp;
  JsonObject object(json, "member");
  for (const VectorField& field : kVectors) object.Read(field.key, mlp.*field.values);
  std::vector<float> output;
  object.Read("output", output);
  for (const LayerField& field : kLayers) {
    if (const Json* layer = object.Find(field.key))
      object.Note(ReadLayer(*layer, field.key, mlp.*field.layer));
  }
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  if (output.size() != 2)
    return absl::InvalidArgumentError("member: 'output' must be a mean and a scale");
  mlp.output_mean = output[0];
  mlp.output_scale = output[1];
  RUNNEL_RETURN_IF_ERROR(CheckMlp(mlp));
  return mlp;
}

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("network: ", what));
}

}  // namespace

double PredictorNetwork::Evaluate(absl::Span<const float> encoding,
                                  absl::Span<const float> hardware) const {
  double sum = 0;
  for (const Mlp& member : members) sum += member.Evaluate(encoding, hardware);
  return sum / static_cast<double>(members.size());
}

std::string FormatNetwork(const PredictorNetwork& network) {
  std::vector<Json> members;
  for (const Mlp& member : network.members) members.push_back(ToJson(member));
  return DumpRows(
      {{"format", kFormat}, {"version", kVersion}, {"row", network.row}, {"model", network.model}},
      "members", members);
}

absl::StatusOr<PredictorNetwork> ParseNetwork(absl::string_view text) {
  if (text.size() > kMaxNetworkBytes)
    return Wrong(absl::StrCat("over the limit of ", kMaxNetworkBytes, " bytes"));
  if (absl::StartsWith(text, "runnel-network 1\n"))
    return Wrong("is of version 1, this program reads 3: train it anew with runnel-predictor");
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  PredictorNetwork network;
  JsonObject object(json, "network");
  object.Format(kFormat, kVersion).Read("row", network.row).Read("model", network.model);
  const Json& members = object.Array("members");
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  for (const std::string* name : {&network.row, &network.model}) {
    if (name->empty() || name->size() > kMaxName)
      return Wrong(absl::StrCat("row and model must have 1 to ", kMaxName, " characters"));
  }
  if (members.empty() || members.size() > kMaxNetworkMembers)
    return Wrong(absl::StrCat("must have 1 to ", kMaxNetworkMembers, " members"));
  for (const Json& member : members) {
    RUNNEL_ASSIGN_OR_RETURN(network.members.emplace_back(), ReadMlp(member));
    const Mlp& first = network.members.front();
    const Mlp& last = network.members.back();
    if (last.encoding_size() != first.encoding_size() ||
        last.hardware_size() != first.hardware_size())
      return Wrong("its members differ in their inputs");
  }
  return network;
}

}  // namespace runnel
