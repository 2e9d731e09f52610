#include "proto/base/model/number_format.h"

#include "absl/strings/str_cat.h"
#include "proto/base/model/rescale.h"

namespace runnel {
namespace {

int64_t AlignUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t TailOffset(DType dtype, const Shape& shape) {
  return AlignUp(shape.elements() * static_cast<int64_t>(SizeOf(dtype)));
}

}  // namespace

int64_t ScaledBytes(DType dtype, const Shape& shape) {
  return TailOffset(dtype, shape) + static_cast<int64_t>(sizeof(ScaleTail));
}

int64_t ValueBytes(DType dtype, const Shape& shape) {
  return IsScaled(dtype) ? ScaledBytes(dtype, shape)
                         : shape.elements() * static_cast<int64_t>(SizeOf(dtype));
}

ScaleTail& TailOf(std::byte* data, DType dtype, const Shape& shape) {
  return *reinterpret_cast<ScaleTail*>(data + TailOffset(dtype, shape));
}

const ScaleTail& TailOf(const std::byte* data, DType dtype, const Shape& shape) {
  return *reinterpret_cast<const ScaleTail*>(data + TailOffset(dtype, shape));
}

int64_t BoundaryBytes(const NumberFormat& format, const Shape& shape, Direction direction) {
  const std::vector<SidePlace> places = SidePlaces(format, shape, direction);
  return places.empty() ? ValueBytes(format.boundary(direction), shape)
                        : static_cast<int64_t>(places.back().memory_offset + places.back().bytes);
}

std::vector<SidePlace> SidePlaces(const NumberFormat& format, const Shape& shape,
                                  Direction direction) {
  std::vector<SidePlace> places;
  int64_t memory_end = ValueBytes(format.boundary(direction), shape), payload_end = 0;
  for (const SideValue& value : format.beside) {
    if (value.of_scaled || !value.travels(direction)) continue;
    const int64_t bytes = value.count(shape) * static_cast<int64_t>(SizeOf(value.type));
    places.push_back({&value, static_cast<size_t>(bytes), static_cast<size_t>(AlignUp(memory_end)),
                      static_cast<size_t>(payload_end)});
    memory_end = AlignUp(memory_end) + bytes;
    payload_end += bytes;
  }
  return places;
}

int64_t SidePayloadBytes(const NumberFormat& format, const Shape& shape, Direction direction) {
  const std::vector<SidePlace> places = SidePlaces(format, shape, direction);
  return places.empty() ? 0
                        : static_cast<int64_t>(places.back().payload_offset + places.back().bytes);
}

namespace {

std::string OpNameOf(const StateTensorSpec& spec) {
  return spec.name.substr(0, spec.name.rfind('.'));
}

// Behind the last tensor of an op with a weight.
void AddOperatorState(const LayerInfo& info, absl::Span<const OperatorState> rows,
                      std::vector<StateTensorSpec>& state) {
  std::vector<StateTensorSpec> result;
  const StateTensorSpec* weight = nullptr;
  for (size_t i = 0; i < state.size(); ++i) {
    const StateTensorSpec& spec = state[i];
    result.push_back(spec);
    if (spec.role == TensorRole::kWeight) weight = &spec;
    const bool is_last = i + 1 == state.size() || state[i + 1].op != spec.op;
    if (!is_last || weight == nullptr) continue;
    for (const OperatorState& row : rows) {
      if (row.of_convolutions && weight->shape.rank() < 3) continue;
      if (weight->frozen && !IsTrainable(row.role)) continue;
      result.push_back({absl::StrCat(OpNameOf(*weight), ".", row.name), weight->op, row.role,
                        row.shape(info.op_outputs[weight->op]), DType::kFloat32, weight->frozen});
    }
    weight = nullptr;
  }
  state = std::move(result);
}

}  // namespace

std::vector<StateTensorSpec> StateOf(const LayerInfo& info, const NumberFormat& format) {
  std::vector<StateTensorSpec> state;
  for (const StateTensorSpec& spec : info.state) {
    state.push_back(spec);
    if (spec.role != TensorRole::kWeight) continue;
    state.back().dtype = format.parameter;
    if (!format.integer_parameters()) continue;
    const std::string op = OpNameOf(spec);
    state.push_back({absl::StrCat(op, ".exponent"), spec.op, TensorRole::kExponent, Shape({1}),
                     DType::kInt32, spec.frozen});
    // Scales follow what is trained, so that those of frozen products are made anew each time.
    if (!format.keeps_scales || spec.frozen) continue;
    state.push_back({absl::StrCat(op, ".kept_scales"), spec.op, TensorRole::kKeptScales,
                     Shape({kScalesPerOperator, kKeptScaleWords}), DType::kInt32});
  }
  if (!format.operator_state.empty()) AddOperatorState(info, format.operator_state, state);
  return state;
}

bool HasSlots(const StateTensorSpec& spec) {
  return IsTrainable(spec.role) && !spec.frozen && IsFloat(spec.dtype);
}

std::vector<StateTensorSpec> SlotsOf(const std::vector<StateTensorSpec>& state,
                                     const NumberFormat& format) {
  std::vector<StateTensorSpec> slots;
  for (const StateTensorSpec& spec : state) {
    if (!HasSlots(spec)) continue;
    for (absl::string_view slot : format.slots) {
      slots.push_back(spec);
      if (slot != kMomentumSlot[0]) absl::StrAppend(&slots.back().name, ".", slot);
    }
  }
  return slots;
}

}  // namespace runnel
