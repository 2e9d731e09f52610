#include "predictor/networks/mlp.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr absl::string_view kMagic = "runnel-mlp 1";

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

// Reads numbers off the words of a file.
class Words {
 public:
  explicit Words(absl::string_view text)
      : words_(absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {}

  absl::StatusOr<int> Size(absl::string_view name) {
    int value = 0;
    if (at_ == words_.size() || !absl::SimpleAtoi(words_[at_++], &value) || value < 1 ||
        value > kMaxMlpWidth) {
      return absl::InvalidArgumentError(
          absl::StrCat("mlp: ", name, " must be a number from 1 to ", kMaxMlpWidth));
    }
    return value;
  }
  // Exactly `count` numbers; there must be as many words left before they are allocated.
  absl::Status Numbers(absl::string_view name, size_t count, std::vector<float>& values) {
    if (words_.size() - at_ < count)
      return absl::InvalidArgumentError(absl::StrCat("mlp: the file ends within ", name));
    values.resize(count);
    for (float& value : values) {
      if (!absl::SimpleAtof(words_[at_++], &value) || !std::isfinite(value)) {
        return absl::InvalidArgumentError(
            absl::StrCat("mlp: ", name, " has a word that is no number"));
      }
    }
    return absl::OkStatus();
  }
  bool done() const { return at_ == words_.size(); }

 private:
  std::vector<absl::string_view> words_;
  size_t at_ = 0;
};

absl::Status ReadLayer(Words& words, absl::string_view name, int inputs, int outputs,
                       LinearLayer& layer) {
  layer.inputs = inputs;
  layer.outputs = outputs;
  RUNNEL_RETURN_IF_ERROR(words.Numbers(name, size_t(inputs) * size_t(outputs), layer.weights));
  return words.Numbers(name, size_t(outputs), layer.bias);
}

void Append(std::string& text, const std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    absl::StrAppendFormat(&text, "%.9g%c", values[i], i + 1 == values.size() ? '\n' : ' ');
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

std::string FormatMlp(const Mlp& mlp) {
  std::string text = absl::StrCat(kMagic, "\n", mlp.encoding_size(), " ", mlp.encoding_1.outputs,
                                  " ", mlp.encoding_2.outputs, " ", mlp.hardware_size(), " ",
                                  mlp.joint_1.outputs, "\n");
  for (const std::vector<float>* values :
       {&mlp.encoding_mean, &mlp.encoding_scale, &mlp.hardware_mean, &mlp.hardware_scale})
    Append(text, *values);
  Append(text, {mlp.output_mean, mlp.output_scale});
  for (const LinearLayer* layer : {&mlp.encoding_1, &mlp.encoding_2, &mlp.joint_1, &mlp.joint_2}) {
    Append(text, layer->weights);
    Append(text, layer->bias);
  }
  return text;
}

absl::StatusOr<Mlp> ParseMlp(absl::string_view text) {
  if (text.size() > kMaxMlpBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("mlp: over the limit of ", kMaxMlpBytes, " bytes"));
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('\n', 1));
  if (parts.first != kMagic)
    return absl::InvalidArgumentError(absl::StrCat("mlp: does not begin with '", kMagic, "'"));
  Words words(parts.second);
  RUNNEL_ASSIGN_OR_RETURN(const int encoding, words.Size("the encoding's size"));
  RUNNEL_ASSIGN_OR_RETURN(const int hidden_1, words.Size("encoding_1's size"));
  RUNNEL_ASSIGN_OR_RETURN(const int hidden_2, words.Size("encoding_2's size"));
  RUNNEL_ASSIGN_OR_RETURN(const int hardware, words.Size("the hardware vector's size"));
  RUNNEL_ASSIGN_OR_RETURN(const int hidden_3, words.Size("joint_1's size"));
  Mlp mlp;
  RUNNEL_RETURN_IF_ERROR(words.Numbers("encoding_mean", size_t(encoding), mlp.encoding_mean));
  RUNNEL_RETURN_IF_ERROR(words.Numbers("encoding_scale", size_t(encoding), mlp.encoding_scale));
  RUNNEL_RETURN_IF_ERROR(words.Numbers("hardware_mean", size_t(hardware), mlp.hardware_mean));
  RUNNEL_RETURN_IF_ERROR(words.Numbers("hardware_scale", size_t(hardware), mlp.hardware_scale));
  std::vector<float> output;
  RUNNEL_RETURN_IF_ERROR(words.Numbers("output", 2, output));
  mlp.output_mean = output[0];
  mlp.output_scale = output[1];
  RUNNEL_RETURN_IF_ERROR(ReadLayer(words, "encoding_1", encoding, hidden_1, mlp.encoding_1));
  RUNNEL_RETURN_IF_ERROR(ReadLayer(words, "encoding_2", hidden_1, hidden_2, mlp.encoding_2));
  RUNNEL_RETURN_IF_ERROR(ReadLayer(words, "joint_1", hidden_2 + hardware, hidden_3, mlp.joint_1));
  RUNNEL_RETURN_IF_ERROR(ReadLayer(words, "joint_2", hidden_3, 1, mlp.joint_2));
  if (!words.done()) return absl::InvalidArgumentError("mlp: there is more behind its end");
  RUNNEL_RETURN_IF_ERROR(CheckMlp(mlp));
  return mlp;
}

}  // namespace runnel
