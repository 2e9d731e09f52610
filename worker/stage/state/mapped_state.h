#pragma once

// The state of a stage, mapped from the backend's memory: to and from tensors as check-points and
// the wire have them.

#include <cstddef>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/compiler.h"
#include "proto/base/model/model_state.h"

namespace runnel {

// One thread, and nothing runs on the memory as long as this lives.
class MappedState {
 public:
  // weights: one version. `layout` and the memory outlive this. Errors as Memory::Map.
  static absl::StatusOr<MappedState> Of(const StateLayout& layout, Memory& weights,
                                        Memory& statistics, Memory& slots, MapAccess access);

  LayerState ReadLayer(int layer) const;
  // layer: its tensors in the order of the layout; one without bytes is zeros.
  void WriteLayer(const LayerState& layer) const;
  // Gives each parameter and statistic to `change`, one copy at a time, and takes it back.
  void Change(absl::FunctionRef<void(int layer, TensorData&)> change) const;

 private:
  MappedState(const StateLayout& layout, Mapping weights, Mapping statistics, Mapping slots)
      : layout_(layout),
        weights_(std::move(weights)),
        statistics_(std::move(statistics)),
        slots_(std::move(slots)) {}
  std::byte* BaseOf(const StateTensor& tensor) const {
    return tensor.storage == Storage::kParameters ? weights_.data() : statistics_.data();
  }

  const StateLayout& layout_;
  Mapping weights_;
  Mapping statistics_;
  Mapping slots_;  // of the optimizer
};

}  // namespace runnel
