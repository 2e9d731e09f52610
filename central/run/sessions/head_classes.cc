#include "central/run/sessions/head_classes.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

TensorData* Find(LayerState& layer, const std::string& name) {
  const auto found = std::find_if(layer.tensors.begin(), layer.tensors.end(),
                                  [&](const TensorData& tensor) { return tensor.name == name; });
  return found == layer.tensors.end() ? nullptr : &*found;
}

float ValueAt(const TensorData& tensor, size_t index) {
  float value = 0;
  std::memcpy(&value, tensor.bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

void SetAt(TensorData& tensor, size_t index, float value) {
  std::memcpy(tensor.bytes.data() + index * sizeof(value), &value, sizeof(value));
}

}  // namespace

absl::Status CheckHead(const ModelSpec& model) {
  const OpSpec& last = model.layers.back().ops.back();
  if (last.kind == OpKind::kLinear && last.bias) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("model ", model.name,
                                                 " does not end in a linear operator with a bias, "
                                                 "by which classes not seen yet are left out"));
}

absl::Status OpenClasses(const ModelSpec& model, const std::vector<bool>& before,
                         const std::vector<bool>& after, ModelState& state) {
  RUNNEL_RETURN_IF_ERROR(CheckHead(model));
  const LayerSpec& layer = model.layers.back();
  const std::string op = layer.OpName(layer.ops.size() - 1);
  LayerState& head = state.layers.back();
  TensorData* weight = Find(head, op + ".weight");
  TensorData* bias = Find(head, op + ".bias");
  const auto classes = static_cast<size_t>(model.classes);
  if (weight == nullptr || bias == nullptr || bias->dtype != DType::kFloat32 ||
      weight->dtype != DType::kFloat32 || bias->bytes.size() != classes * sizeof(float) ||
      weight->bytes.size() % bias->bytes.size() != 0 || before.size() != classes ||
      after.size() != classes)
    return absl::InvalidArgumentError("the head's weights are not in FP32");
  double sum = 0, seen = 0;
  for (size_t i = 0; i < classes; ++i) {
    if (!before[i]) continue;
    sum += static_cast<double>(ValueAt(*bias, i));
    ++seen;
  }
  const size_t row = weight->bytes.size() / classes;
  for (size_t i = 0; i < classes; ++i) {
    if (!after[i]) SetAt(*bias, i, kUnseenBias);
    if (!after[i] || before[i]) continue;
    SetAt(*bias, i, seen > 0 ? static_cast<float>(sum / seen) : 0.0f);
    std::fill_n(weight->bytes.begin() + static_cast<std::ptrdiff_t>(i * row), row, '\0');
  }
  return absl::OkStatus();
}

}  // namespace runnel
