#include "proto/base/model/model_state.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/model/rescale.h"
#include "proto/base/model/width_state.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

absl::Status CheckTensor(const TensorData& tensor, const StateTensorSpec& spec, int layer,
                         ZeroTensors zeros) {
  const bool is_left_out = zeros == ZeroTensors::kLeftOut && tensor.bytes.empty();
  const size_t bytes =
      is_left_out ? 0 : static_cast<size_t>(spec.shape.elements()) * SizeOf(spec.dtype);
  if (tensor.name != spec.name || tensor.dtype != spec.dtype || !(tensor.shape == spec.shape) ||
      tensor.bytes.size() != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "state of layer ", layer, ": tensor ", tensor.name, " ", Name(tensor.dtype), " ",
        tensor.shape.ToString(), " with ", tensor.bytes.size(), " bytes is not ", spec.name, " ",
        Name(spec.dtype), " ", spec.shape.ToString(), " of the model"));
  }
  return absl::OkStatus();
}

bool AreKeptScales(absl::string_view bytes) {
  for (size_t at = 0; at + sizeof(KeptScale) <= bytes.size(); at += sizeof(KeptScale)) {
    KeptScale scale;
    std::memcpy(static_cast<void*>(&scale), bytes.data() + at, sizeof(scale));
    if (!IsValid(scale)) return false;
  }
  return true;
}

bool AreWidths(const std::string& bytes) {
  for (size_t at = 0; at + sizeof(WidthState) <= bytes.size(); at += sizeof(WidthState)) {
    WidthState state;
    std::memcpy(static_cast<void*>(&state), bytes.data() + at, sizeof(state));
    if (!IsValid(state)) return false;
  }
  return true;
}

// Values that a recipe never has.
absl::Status CheckValues(const TensorData& tensor, const StateTensorSpec& spec, int layer) {
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("state of layer ", layer, ": tensor ", tensor.name, " ", what));
  };
  if (spec.dtype == DType::kInt8 && tensor.bytes.find('\x80') != std::string::npos) {
    return error("has a mantissa of -128");
  }
  if (spec.role == TensorRole::kKeptScales && !AreKeptScales(tensor.bytes)) {
    return error("has numbers that no kept scale has");
  }
  if (spec.role == TensorRole::kWidths && !AreWidths(tensor.bytes)) {
    return error("has numbers that no width has");
  }
  if (spec.role != TensorRole::kExponent || tensor.bytes.empty()) return absl::OkStatus();
  uint32_t bits = 0;
  for (int i = 3; i >= 0; --i) bits = bits << 8 | static_cast<unsigned char>(tensor.bytes[i]);
  const auto exponent = static_cast<int32_t>(bits);
  if (kScaleExponent.Admits(exponent)) return absl::OkStatus();
  return error(absl::StrCat("is ", exponent, ", not in ", -kMaxExponent, "..", kMaxExponent));
}

absl::Status CheckLayer(const LayerState& state, const LayerInfo& info, const NumberFormat& format,
                        ZeroTensors zeros) {
  const std::vector<StateTensorSpec> specs = StateOf(info, format);
  const std::vector<StateTensorSpec> slots = SlotsOf(specs, format);
  if (state.tensors.size() != specs.size() || state.slots.size() != slots.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("state of layer ", state.layer, ": has ", state.tensors.size(), "+",
                     state.slots.size(), " tensors, the model ", specs.size(), "+", slots.size()));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    RUNNEL_RETURN_IF_ERROR(CheckTensor(state.tensors[i], specs[i], state.layer, zeros));
    RUNNEL_RETURN_IF_ERROR(CheckValues(state.tensors[i], specs[i], state.layer));
  }
  for (size_t i = 0; i < slots.size(); ++i)
    RUNNEL_RETURN_IF_ERROR(CheckTensor(state.slots[i], slots[i], state.layer, zeros));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckState(const ModelState& state, const ModelSpec& model, int first_layer,
                        int last_layer, const NumberFormat& format, ZeroTensors zeros) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  const size_t expected = static_cast<size_t>(last_layer - first_layer + 1);
  if (state.layers.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "state: has ", state.layers.size(), " layers, needs ", expected, " of model ", model.name));
  }
  for (size_t i = 0; i < expected; ++i) {
    const int layer = first_layer + static_cast<int>(i);
    if (state.layers[i].layer != layer) {
      return absl::InvalidArgumentError(
          absl::StrCat("state: has layer ", state.layers[i].layer, " for ", layer));
    }
    RUNNEL_RETURN_IF_ERROR(CheckLayer(state.layers[i], infos[layer], format, zeros));
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(absl::string_view field, const ModelState& state) {
  for (const LayerState& layer : state.layers) {
    for (const std::vector<TensorData>* tensors : {&layer.tensors, &layer.slots}) {
      for (const TensorData& tensor : *tensors) {
        const auto* bytes = reinterpret_cast<const std::byte*>(tensor.bytes.data());
        if (AllFinite(tensor.dtype, {bytes, tensor.bytes.size()})) continue;
        return absl::InvalidArgumentError(absl::StrCat(field, ": layer ", layer.layer, ", ",
                                                       tensor.name,
                                                       ": has a value that is no finite number"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelState> ZeroState(const ModelSpec& model, int first_layer, int last_layer,
                                     const NumberFormat& format) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  if (first_layer < 0 || last_layer < first_layer || last_layer >= model.layer_count()) {
    return absl::InvalidArgumentError(absl::StrCat("state: model ", model.name, " has no layers ",
                                                   first_layer, "..", last_layer));
  }
  ModelState state;
  for (int layer = first_layer; layer <= last_layer; ++layer) {
    LayerState& one = state.layers.emplace_back(LayerState{layer, {}, {}});
    const std::vector<StateTensorSpec> specs = StateOf(infos[static_cast<size_t>(layer)], format);
    for (const StateTensorSpec& spec : specs)
      one.tensors.push_back({spec.name, spec.dtype, spec.shape, {}});
    for (const StateTensorSpec& spec : SlotsOf(specs, format))
      one.slots.push_back({spec.name, spec.dtype, spec.shape, {}});
  }
  return state;
}

void KeepWeightsOnly(ModelState& state) {
  for (LayerState& layer : state.layers) {
    for (TensorData& tensor : layer.slots) tensor.bytes.clear();
  }
  state.encoders.clear();
}

namespace {

bool IsAverage(const TensorData& slot) {
  return absl::EndsWith(slot.name, absl::StrCat(".", kAverageSlot));
}

}  // namespace

void UseAverages(ModelState& state) {
  for (LayerState& layer : state.layers) {
    for (const TensorData& slot : layer.slots) {
      if (!IsAverage(slot) || slot.bytes.empty()) continue;
      const size_t length = slot.name.size() - kAverageSlot.size() - 1;
      for (TensorData& tensor : layer.tensors) {
        if (tensor.name == absl::string_view(slot.name).substr(0, length))
          tensor.bytes = slot.bytes;
      }
    }
  }
}

void TakeAverages(ModelState& state) {
  UseAverages(state);
  for (LayerState& layer : state.layers) std::erase_if(layer.slots, IsAverage);
}

void FillZeros(ModelState& state) {
  for (LayerState& layer : state.layers) {
    for (std::vector<TensorData>* tensors : {&layer.tensors, &layer.slots}) {
      for (TensorData& tensor : *tensors)
        tensor.bytes.resize(static_cast<size_t>(tensor.shape.elements()) * SizeOf(tensor.dtype));
    }
  }
}

namespace {

absl::StatusOr<std::vector<int64_t>> BytesByLayer(const ModelSpec& model,
                                                  const NumberFormat& format, bool with_slots) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  std::vector<int64_t> bytes;
  for (const LayerInfo& info : infos) {
    int64_t& layer = bytes.emplace_back();
    const std::vector<StateTensorSpec> specs = StateOf(info, format);
    const auto add = [&layer](const std::vector<StateTensorSpec>& tensors) {
      for (const StateTensorSpec& spec : tensors)
        layer += spec.shape.elements() * static_cast<int64_t>(SizeOf(spec.dtype));
    };
    add(specs);
    if (with_slots) add(SlotsOf(specs, format));
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> StateBytes(const ModelSpec& model,
                                                const NumberFormat& format) {
  return BytesByLayer(model, format, true);
}

absl::StatusOr<std::vector<int64_t>> WeightBytes(const ModelSpec& model,
                                                 const NumberFormat& format) {
  return BytesByLayer(model, format, false);
}

ModelState Slice(const ModelState& state, int first_layer, int last_layer) {
  ModelState part;
  for (const LayerState& layer : state.layers) {
    if (layer.layer >= first_layer && layer.layer <= last_layer) part.layers.push_back(layer);
  }
  for (const EncoderState& encoder : state.encoders) {
    // A stage encodes activations after its last layer and gradients before its first one, and may
    // need the state of what it decodes there (EncoderState).
    const bool above = encoder.boundary == first_layer - 1;
    const bool below = encoder.boundary == last_layer;
    if (above || (below && encoder.direction == Direction::kForward))
      part.encoders.push_back(encoder);
  }
  return part;
}

void Merge(const ModelState& part, ModelState& whole) {
  for (const LayerState& layer : part.layers) {
    auto at = std::lower_bound(
        whole.layers.begin(), whole.layers.end(), layer,
        [](const LayerState& a, const LayerState& b) { return a.layer < b.layer; });
    if (at != whole.layers.end() && at->layer == layer.layer) {
      *at = layer;
    } else {
      whole.layers.insert(at, layer);
    }
  }
  for (const EncoderState& encoder : part.encoders) {
    auto same = [&encoder](const EncoderState& other) {
      return other.boundary == encoder.boundary && other.direction == encoder.direction;
    };
    auto at = std::find_if(whole.encoders.begin(), whole.encoders.end(), same);
    if (at != whole.encoders.end()) {
      *at = encoder;
    } else {
      whole.encoders.push_back(encoder);
    }
  }
}

}  // namespace runnel
