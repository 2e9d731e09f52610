// Networks from files: JSON, ONNX as bytes, and ONNX as text, which changes leave readable more
// often. What is taken has shapes, and its weights fit it.

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include "absl/strings/str_cat.h"
#include "onnx/onnx_pb.h"
#include "partition/export/onnx_model.h"
#include "partition/import/model_json.h"
#include "partition/import/onnx_model.h"
#include "proto/base/model/initial_state.h"
#include "tests/fuzz/fuzz_target.h"

namespace runnel::fuzz {
namespace {

constexpr char kImages[] =
    R"({"format": "runnel-model", "version": 1, "name": "mine", "input": [2, 6, 6],
 "classes": 3, "layers": [
 {"name":"a","ops":[{"op":"conv","out":4,"kernel":3,"padding":1},{"op":"batch_norm"},{"op":"hard_sigmoid"},
  {"op":"multiply","from":[2,3]}]},
 {"name":"b","ops":[{"op":"conv","out":4,"kernel":3,"padding":1,"groups":2},{"op":"leaky_relu"},
  {"op":"add","from":[2,0]},{"op":"max_pool","kernel":2,"stride":2}]},
 {"name":"c","ops":[{"op":"conv","out":2,"kernel":1},{"op":"relu6"},{"op":"concat","from":[2,0]},
  {"op":"avg_pool","kernel":3,"stride":1,"padding":1},{"op":"channel_shuffle","groups":2}]},
 {"name":"d","ops":[{"op":"global_avg_pool"},{"op":"linear","out":3,"bias":true}]}]})";
constexpr char kTokens[] = R"({"format": "runnel-model", "version": 1, "name": "text", "input": [4],
 "classes": 5, "layers": [
 {"name":"e","ops":[{"op":"embedding","rows":5,"positions":true,"out":4}]},
 {"name":"f","ops":[{"op":"layer_norm"},{"op":"linear","out":12},{"op":"attention","heads":2},
  {"op":"linear","out":4},{"op":"add","from":[4,0]}]},
 {"name":"g","ops":[{"op":"linear","out":8},{"op":"gelu"},{"op":"linear","out":5,"bias":true}]}]})";

std::string OnnxOf(absl::string_view json) {
  const absl::StatusOr<ModelSpec> model = ModelFromJson(json);
  Require(model.ok(), std::string(model.status().message()).c_str());
  const absl::StatusOr<std::string> bytes = ModelToOnnx(*model, InitialState(*model, 5).value(), 0);
  Require(bytes.ok(), std::string(bytes.status().message()).c_str());
  return *bytes;
}

std::string TextOf(const std::string& bytes) {
  onnx::ModelProto model;
  Require(model.ParseFromString(bytes), "an ONNX file is parsed");
  std::string text;
  Require(google::protobuf::TextFormat::PrintToString(model, &text), "it is printed");
  return text;
}

// Text that is no message is left out.
absl::StatusOr<OnnxModel> FromText(absl::string_view text) {
  google::protobuf::TextFormat::Parser parser;
  struct Silent final : google::protobuf::io::ErrorCollector {
    void AddError(int, int, const std::string&) override {}
  } silent;
  parser.RecordErrorsTo(&silent);
  onnx::ModelProto model;
  if (!parser.ParseFromString(std::string(text), &model)) return absl::InvalidArgumentError("text");
  return ModelFromOnnx(model.SerializeAsString());
}

void TryOnnx(const absl::StatusOr<OnnxModel>& onnx) {
  Require(onnx.status().message().find('\n') == absl::string_view::npos, "errors are one line");
  if (!onnx.ok()) return;
  Require(InferShapes(onnx->model, 2).ok(), "a model has shapes");
  Require(onnx->state.layers.size() <= onnx->model.layers.size(), "weights are of its layers");
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const std::string json : {kImages, kTokens}) {
    const std::string onnx = OnnxOf(json);
    seeds.insert(seeds.end(), {"j" + json, "o" + onnx, "t" + TextOf(onnx), "t" + TextOf(onnx)});
  }
  return seeds;
}

void Try(absl::string_view input) {
  if (input.empty()) return;
  const char kind = input[0];
  input.remove_prefix(1);
  if (kind == 'o') return TryOnnx(ModelFromOnnx(input));
  if (kind == 't') return TryOnnx(FromText(input));
  if (kind != 'j') return;
  const absl::StatusOr<ModelSpec> model = ModelFromJson(input);
  Require(model.status().message().find('\n') == absl::string_view::npos, "errors are one line");
  if (!model.ok()) return;
  Require(InferShapes(*model, 2).ok(), "a model has shapes");
  const absl::StatusOr<ModelSpec> again = ModelFromJson(ModelToJson(*model));
  Require(again.ok() && *again == *model, "JSON comes back");
}

}  // namespace runnel::fuzz
