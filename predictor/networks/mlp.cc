#include "predictor/networks/mlp.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

std::vector<float> Apply(const LinearLayer& layer, absl::Span<const float> input, bool relu) {
  std::vector<float> output(static_cast<size_t>(layer.outputs));
  for (int row = 0; row < layer.outputs; ++row) {
    const float* weights = layer.weights.data() + size_t(row) * size_t(layer.inputs);
    double sum = layer.bias[static_cast<size_t>(row)];
    for (int i = 0; i < layer.inputs; ++i) sum += double{weights[i]} * double{input[i]};
    const auto value = static_cast<float>(sum);
    output[static_cast<size_t>(row)] = relu ? std::max(value, 0.0f) : value;
  }
  return output;
}

bool AllFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

absl::Status CheckLayer(absl::string_view name, const LinearLayer& layer, int inputs) {
  if (layer.inputs != inputs || layer.outputs < 1 || layer.inputs < 1 ||
      layer.inputs > kMaxMlpWidth || layer.outputs > kMaxMlpWidth) {
    return absl::InvalidArgumentError(absl::StrCat("mlp: ", name, " is ", layer.inputs, " to ",
                                                   layer.outputs, ", it gets ", inputs));
  }
  if (layer.weights.size() != size_t(layer.inputs) * size_t(layer.outputs) ||
      layer.bias.size() != size_t(layer.outputs)) {
    return absl::InvalidArgumentError(
        absl::StrCat("mlp: ", name, " does not have the numbers that its size asks for"));
  }
  if (AllFinite(layer.weights) && AllFinite(layer.bias)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("mlp: ", name, " has a value that is not finite"));
}

absl::Status CheckNormalisation(absl::string_view name, const std::vector<float>& mean,
                                const std::vector<float>& scale, size_t size) {
  const bool positive = std::all_of(scale.begin(), scale.end(), [](float v) { return v > 0; });
  if (mean.size() == size && scale.size() == size && AllFinite(mean) && AllFinite(scale) &&
      positive)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("mlp: the normalisation of ", name, " does not fit"));
}

}  // namespace

std::vector<float> Normalised(absl::Span<const float> input, const std::vector<float>& mean,
                              const std::vector<float>& scale) {
  std::vector<float> result(input.size());
  for (size_t i = 0; i < input.size(); ++i)
    result[i] = std::clamp((input[i] - mean[i]) / scale[i], -kMostScales, kMostScales);
  return result;
}

double Mlp::Evaluate(absl::Span<const float> encoding, absl::Span<const float> hardware) const {
  const std::vector<float> first =
      Apply(encoding_1, Normalised(encoding, encoding_mean, encoding_scale), true);
  std::vector<float> joint = Apply(encoding_2, first, true);
  const std::vector<float> h = Normalised(hardware, hardware_mean, hardware_scale);
  joint.insert(joint.end(), h.begin(), h.end());
  const float network = Apply(joint_2, Apply(joint_1, joint, true), false)[0];
  return double{output_mean} + double{output_scale} * double{network};
}

absl::Status CheckMlp(const Mlp& mlp) {
  RUNNEL_RETURN_IF_ERROR(CheckLayer("encoding_1", mlp.encoding_1, mlp.encoding_size()));
  RUNNEL_RETURN_IF_ERROR(CheckLayer("encoding_2", mlp.encoding_2, mlp.encoding_1.outputs));
  RUNNEL_RETURN_IF_ERROR(
      CheckLayer("joint_1", mlp.joint_1, mlp.encoding_2.outputs + mlp.hardware_size()));
  RUNNEL_RETURN_IF_ERROR(CheckLayer("joint_2", mlp.joint_2, mlp.joint_1.outputs));
  if (mlp.joint_2.outputs != 1)
    return absl::InvalidArgumentError("mlp: joint_2 must have one output");
  RUNNEL_RETURN_IF_ERROR(CheckNormalisation("the encoding", mlp.encoding_mean, mlp.encoding_scale,
                                            size_t(mlp.encoding_size())));
  RUNNEL_RETURN_IF_ERROR(CheckNormalisation("the hardware vector", mlp.hardware_mean,
                                            mlp.hardware_scale, mlp.hardware_mean.size()));
  return CheckNormalisation("the output", {mlp.output_mean}, {mlp.output_scale}, 1);
}

}  // namespace runnel
