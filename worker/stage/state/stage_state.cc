#include "worker/stage/state/stage_state.h"

#include <array>
#include <cstring>
#include <utility>

#include "proto/base/status_macros.h"
#include "worker/stage/gradient_norm.h"
#include "worker/stage/state/staleness.h"
#include "worker/stage/state/weight_average.h"

namespace runnel {
namespace {

const float* FloatsAt(const Mapping& from, int64_t offset_bytes) {
  return reinterpret_cast<const float*>(from.data() + offset_bytes);
}

float* FloatsOf(const Mapping& to, int64_t offset_bytes) {
  return reinterpret_cast<float*>(to.data() + offset_bytes);
}

// A trained tensor of floats, whose gradient lies with the others.
bool HasFloatGradient(const StateTensor& tensor) {
  return tensor.storage == Storage::kParameters && HasSlots(tensor.spec);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StageState>> StageState::Create(const CompiledStage& programs,
                                                               size_t slots, StageMemory& memory) {
  std::unique_ptr<StageState> state(new StageState(programs, slots, memory));
  const StateLayout& layout = programs.layout();
  const auto allocate = [&memory](int64_t bytes) { return memory.Allocate(bytes); };
  RUNNEL_ASSIGN_OR_RETURN(state->stash_,
                          Stash::Create(allocate, layout.parameter_bytes, programs.stash_bytes()));
  RUNNEL_ASSIGN_OR_RETURN(state->slots_, memory.Allocate(layout.slot_bytes));
  RUNNEL_ASSIGN_OR_RETURN(state->gradients_, memory.Allocate(layout.gradient_bytes));
  RUNNEL_ASSIGN_OR_RETURN(state->statistics_, memory.Allocate(layout.statistic_bytes));
  return state;
}

absl::StatusOr<MappedState> StageState::Read() const {
  return MappedState::Of(layout(), stash_->newest(), *statistics_, *slots_, MapAccess::kRead);
}

absl::StatusOr<MappedState> StageState::Change() {
  are_averages_stale_ = true;
  return MappedState::Of(layout(), stash_->newest(), *statistics_, *slots_, MapAccess::kReadWrite);
}

Bindings StageState::Bind(const Memory& weights, const Memory& scratch) const {
  Bindings bindings;
  bindings[Storage::kParameters] = weights.address();
  bindings[Storage::kGradients] = gradients_->address();
  bindings[Storage::kSlots] = slots_->address();
  bindings[Storage::kStatistics] = statistics_->address();
  bindings[Storage::kScratch] = scratch.address();
  if (programs_.steps_in_backward()) bindings[Storage::kNewParameters] = weights.address();
  return bindings;
}

absl::Status StageState::LookAhead(const OptimizerStep& step, const StepContext& context,
                                   double distance, Memory& to) const {
  const OptimizerScalars scalars = step.scalars(context);
  RUNNEL_ASSIGN_OR_RETURN(const Mapping newest, Mapping::Of(stash_->newest(), MapAccess::kRead));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping slots, Mapping::Of(*slots_, MapAccess::kRead));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping ahead, Mapping::Of(to, MapAccess::kReadWrite));
  for (const StateTensor& tensor : layout().tensors) {
    if (tensor.storage != Storage::kParameters) continue;
    const int64_t elements = tensor.spec.shape.elements();
    if (HasSlots(tensor.spec)) {
      std::array<const float*, kMostSlots> at = {};
      for (size_t k = 0; k < slot_count_; ++k)
        at[k] = FloatsAt(slots, layout().SlotOffset(tensor, k));
      step.look_ahead(scalars, FloatsAt(newest, tensor.offset_bytes), at.data(),
                      static_cast<float>(distance), elements, FloatsOf(ahead, tensor.offset_bytes));
    } else {
      std::memcpy(ahead.data() + tensor.offset_bytes, newest.data() + tensor.offset_bytes,
                  static_cast<size_t>(elements) * SizeOf(tensor.spec.dtype));
    }
  }
  return absl::OkStatus();
}

absl::Status StageState::AverageVersions(int64_t count) {
  std::vector<Mapping> versions;  // the newest, which the mean replaces, comes first
  for (Memory* version : stash_->NewestVersions(count)) {
    const MapAccess access = versions.empty() ? MapAccess::kReadWrite : MapAccess::kRead;
    RUNNEL_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Of(*version, access));
    versions.push_back(std::move(mapping));
  }
  if (versions.empty()) return absl::OkStatus();
  std::vector<const float*> tensors(versions.size());
  for (const StateTensor& tensor : layout().tensors) {
    if (!HasSlots(tensor.spec)) continue;
    for (size_t i = 0; i < versions.size(); ++i)
      tensors[i] = FloatsAt(versions[i], tensor.offset_bytes);
    runnel::AverageVersions(tensors, tensor.spec.shape.elements(),
                            FloatsOf(versions[0], tensor.offset_bytes));
  }
  return absl::OkStatus();
}

absl::Status StageState::MoveAverage(float share) {
  are_averages_stale_ = true;
  RUNNEL_ASSIGN_OR_RETURN(const Mapping weights, Mapping::Of(stash_->newest(), MapAccess::kRead));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping slots, Mapping::Of(*slots_, MapAccess::kReadWrite));
  for (const StateTensor& tensor : layout().tensors) {
    if (!HasSlots(tensor.spec)) continue;
    runnel::MoveAverage(share, FloatsAt(weights, tensor.offset_bytes), tensor.spec.shape.elements(),
                        FloatsOf(slots, layout().SlotOffset(tensor, slot_count_ - 1)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Memory*> StageState::Averages() {
  if (!are_averages_stale_) return averages_.get();
  if (averages_ == nullptr) {
    RUNNEL_ASSIGN_OR_RETURN(averages_, memory_.Allocate(layout().parameter_bytes));
  }
  RUNNEL_ASSIGN_OR_RETURN(const Mapping weights, Mapping::Of(stash_->newest(), MapAccess::kRead));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping slots, Mapping::Of(*slots_, MapAccess::kRead));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping to, Mapping::Of(*averages_, MapAccess::kReadWrite));
  std::memcpy(to.data(), weights.data(), static_cast<size_t>(layout().parameter_bytes));
  for (const StateTensor& tensor : layout().tensors) {
    if (!HasSlots(tensor.spec)) continue;
    std::memcpy(to.data() + tensor.offset_bytes,
                slots.data() + layout().SlotOffset(tensor, slot_count_ - 1),
                static_cast<size_t>(tensor.spec.shape.elements()) * sizeof(float));
  }
  are_averages_stale_ = false;
  return averages_.get();
}

absl::StatusOr<std::vector<double>> StageState::GradientSquares(int first, int layers) const {
  std::vector<double> squares(static_cast<size_t>(layers));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping from, Mapping::Of(*gradients_, MapAccess::kRead));
  for (const StateTensor& tensor : layout().tensors) {
    if (!HasFloatGradient(tensor)) continue;
    squares[static_cast<size_t>(tensor.layer - first)] +=
        SquareSum(FloatsAt(from, tensor.gradient_offset_bytes), tensor.spec.shape.elements());
  }
  return squares;
}

absl::Status StageState::ReadGradients(std::vector<float>& gradients) const {
  RUNNEL_ASSIGN_OR_RETURN(const Mapping from, Mapping::Of(*gradients_, MapAccess::kRead));
  for (const StateTensor& tensor : layout().tensors) {
    if (!HasFloatGradient(tensor)) continue;
    const float* values = FloatsAt(from, tensor.gradient_offset_bytes);
    gradients.insert(gradients.end(), values, values + tensor.spec.shape.elements());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::byte>> StageState::ReadStatistics() const {
  RUNNEL_ASSIGN_OR_RETURN(const Mapping from, Mapping::Of(*statistics_, MapAccess::kRead));
  return std::vector<std::byte>(from.data(), from.data() + layout().statistic_bytes);
}

absl::Status StageState::WriteStatistics(const std::vector<std::byte>& statistics) {
  RUNNEL_ASSIGN_OR_RETURN(const Mapping to, Mapping::Of(*statistics_, MapAccess::kReadWrite));
  std::memcpy(to.data(), statistics.data(), statistics.size());
  return absl::OkStatus();
}

}  // namespace runnel
