// The state of a StageExecutor to and from tensors as check-points and the wire have them.

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/status_macros.h"
#include "worker/stage/stage_executor.h"

namespace runnel {
namespace {

// Copies a weight between (out, in, positions) and (out, positions, in), elements of one byte.
void TurnWeight(const Shape& shape, bool to_channels_last, const std::byte* from, std::byte* to) {
  const int64_t in = shape[1], positions = shape.elements() / shape[0] / in;
  for (int64_t o = 0; o < shape[0]; ++o, from += in * positions, to += in * positions) {
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t p = 0; p < positions; ++p) {
        if (to_channels_last) {
          to[p * in + i] = from[i * positions + p];
        } else {
          to[i * positions + p] = from[p * in + i];
        }
      }
    }
  }
}

}  // namespace

TensorData StageExecutor::Extract(const StateTensor& tensor, const std::byte* base) const {
  const size_t bytes =
      static_cast<size_t>(tensor.spec.shape.elements()) * SizeOf(tensor.spec.dtype);
  const char* data = reinterpret_cast<const char*>(base + tensor.offset_bytes);
  TensorData result = {tensor.spec.name, tensor.spec.dtype, tensor.spec.shape,
                       std::string(data, bytes)};
  if (tensor.channels_last) {
    TurnWeight(tensor.spec.shape, false, base + tensor.offset_bytes,
               reinterpret_cast<std::byte*>(result.bytes.data()));
  }
  return result;
}

void StageExecutor::Put(const TensorData& from, const StateTensor& to, std::byte* base) const {
  const std::byte* bytes = reinterpret_cast<const std::byte*>(from.bytes.data());
  if (from.bytes.empty()) {
    const auto size = static_cast<size_t>(to.spec.shape.elements()) * SizeOf(to.spec.dtype);
    std::memset(base + to.offset_bytes, 0, size);
    return;
  }
  if (to.channels_last) return TurnWeight(from.shape, true, bytes, base + to.offset_bytes);
  std::memcpy(base + to.offset_bytes, bytes, from.bytes.size());
}

absl::StatusOr<ModelState> StageExecutor::ExportState() const {
  RUNNEL_ASSIGN_OR_RETURN(const StateMappings from, MapState(MapAccess::kRead));
  ModelState state;
  for (int layer = options_.first_layer; layer <= options_.last_layer; ++layer) {
    LayerState& part = state.layers.emplace_back();
    part.layer = layer;
    for (const StateTensor& tensor : layout_.tensors) {
      if (tensor.layer != layer) continue;
      const bool versioned = tensor.storage == Storage::kParameters;
      part.tensors.push_back(
          Extract(tensor, versioned ? from.weights.data() : from.statistics.data()));
    }
    for (const StateTensor& slot : layout_.slots) {
      if (slot.layer == layer) part.slots.push_back(Extract(slot, from.slots.data()));
    }
  }
  return state;
}

void StageExecutor::PutLayer(const LayerState& layer, const StateMappings& to) const {
  size_t next = 0;  // of the layer's tensors, which are in the same order
  for (const StateTensor& tensor : layout_.tensors) {
    if (tensor.layer != layer.layer) continue;
    const bool versioned = tensor.storage == Storage::kParameters;
    Put(layer.tensors[next++], tensor, versioned ? to.weights.data() : to.statistics.data());
  }
  next = 0;
  for (const StateTensor& slot : layout_.slots) {
    if (slot.layer == layer.layer) Put(layer.slots[next++], slot, to.slots.data());
  }
}

absl::StatusOr<StageExecutor::StateMappings> StageExecutor::MapState(MapAccess access) const {
  RUNNEL_ASSIGN_OR_RETURN(Mapping weights, Mapping::Of(stash_->newest(), access));
  RUNNEL_ASSIGN_OR_RETURN(Mapping statistics, Mapping::Of(*statistics_, access));
  RUNNEL_ASSIGN_OR_RETURN(Mapping slots, Mapping::Of(*slots_, access));
  return StateMappings{std::move(weights), std::move(statistics), std::move(slots)};
}

absl::Status StageExecutor::ImportState(const ModelState& state) {
  RUNNEL_RETURN_IF_ERROR(CheckState(state, options_.model, options_.first_layer,
                                    options_.last_layer, numbers_, ZeroTensors::kLeftOut));
  RUNNEL_ASSIGN_OR_RETURN(const StateMappings to, MapState(MapAccess::kReadWrite));
  for (const LayerState& layer : state.layers) PutLayer(layer, to);
  return absl::OkStatus();
}

absl::Status StageExecutor::ChangeState(absl::FunctionRef<void(int, TensorData&)> change) {
  RUNNEL_ASSIGN_OR_RETURN(const StateMappings state, MapState(MapAccess::kReadWrite));
  for (const StateTensor& tensor : layout_.tensors) {
    const bool versioned = tensor.storage == Storage::kParameters;
    std::byte* base = versioned ? state.weights.data() : state.statistics.data();
    TensorData copy = Extract(tensor, base);
    change(tensor.layer, copy);
    Put(copy, tensor, base);
  }
  return absl::OkStatus();
}

absl::Status StageExecutor::DrawState() {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(options_.model, 1));
  RUNNEL_ASSIGN_OR_RETURN(const StateMappings to, MapState(MapAccess::kReadWrite));
  for (int layer = options_.first_layer; layer <= options_.last_layer; ++layer) {
    PutLayer(InitialLayer(options_.model, infos[static_cast<size_t>(layer)], layer,
                          options_.training.seed, numbers_),
             to);
  }
  return absl::OkStatus();
}

}  // namespace runnel
