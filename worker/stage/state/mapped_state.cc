#include "worker/stage/state/mapped_state.h"

#include <cstring>
#include <string>
#include <utility>

#include "proto/base/status_macros.h"

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

TensorData Extract(const StateTensor& tensor, const std::byte* base) {
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

void Put(const TensorData& from, const StateTensor& to, std::byte* base) {
  const std::byte* bytes = reinterpret_cast<const std::byte*>(from.bytes.data());
  if (from.bytes.empty()) {
    const auto size = static_cast<size_t>(to.spec.shape.elements()) * SizeOf(to.spec.dtype);
    std::memset(base + to.offset_bytes, 0, size);
    return;
  }
  if (to.channels_last) return TurnWeight(from.shape, true, bytes, base + to.offset_bytes);
  std::memcpy(base + to.offset_bytes, bytes, from.bytes.size());
}

}  // namespace

absl::StatusOr<MappedState> MappedState::Of(const StateLayout& layout, Memory& weights,
                                            Memory& statistics, Memory& slots, MapAccess access) {
  RUNNEL_ASSIGN_OR_RETURN(Mapping mapped_weights, Mapping::Of(weights, access));
  RUNNEL_ASSIGN_OR_RETURN(Mapping mapped_statistics, Mapping::Of(statistics, access));
  RUNNEL_ASSIGN_OR_RETURN(Mapping mapped_slots, Mapping::Of(slots, access));
  return MappedState(layout, std::move(mapped_weights), std::move(mapped_statistics),
                     std::move(mapped_slots));
}

LayerState MappedState::ReadLayer(int layer) const {
  LayerState read;
  read.layer = layer;
  for (const StateTensor& tensor : layout_.tensors) {
    if (tensor.layer == layer) read.tensors.push_back(Extract(tensor, BaseOf(tensor)));
  }
  for (const StateTensor& slot : layout_.slots) {
    if (slot.layer == layer) read.slots.push_back(Extract(slot, slots_.data()));
  }
  return read;
}

void MappedState::WriteLayer(const LayerState& layer) const {
  size_t next = 0;
  for (const StateTensor& tensor : layout_.tensors) {
    if (tensor.layer == layer.layer) Put(layer.tensors[next++], tensor, BaseOf(tensor));
  }
  next = 0;
  for (const StateTensor& slot : layout_.slots) {
    if (slot.layer == layer.layer) Put(layer.slots[next++], slot, slots_.data());
  }
}

void MappedState::Change(absl::FunctionRef<void(int, TensorData&)> change) const {
  for (const StateTensor& tensor : layout_.tensors) {
    TensorData copy = Extract(tensor, BaseOf(tensor));
    change(tensor.layer, copy);
    Put(copy, tensor, BaseOf(tensor));
  }
}

}  // namespace runnel
