#pragma once

// Formats of a recipe's numbers outside its kernels: on a boundary, in a check-point, on the wire.
// Pure functions; any thread.
// || A scaled tensor has one exponent for all of its elements: real value = mantissa * 2^exponent
// (NITI, arXiv 2009.13108). In memory a ScaleTail follows its elements at the next multiple of 64
// bytes, so the exponent travels with the tensor through copies, stashes and payloads.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/ids.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/side_values.h"
#include "proto/base/tensor/dtype.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// 64 bytes behind the elements of a scaled tensor.
struct ScaleTail {
  int32_t exponent = 0;
  int32_t reserved = 0;
  int64_t max_abs = 0;  // the largest |element| of a 32- or 64-bit tensor; 0 for int8
  int64_t padding[6] = {};
};
static_assert(sizeof(ScaleTail) == 64);

// Bytes of a scaled tensor with its tail.
int64_t ScaledBytes(DType dtype, const Shape& shape);
// Bytes in memory of a tensor of values: of a scaled one with its tail.
int64_t ValueBytes(DType dtype, const Shape& shape);
// The tail of the scaled tensor that starts at `data`.
ScaleTail& TailOf(std::byte* data, DType dtype, const Shape& shape);
const ScaleTail& TailOf(const std::byte* data, DType dtype, const Shape& shape);

// Products of two mantissas that an int32 holds: 133,144 * 127^2 < 2^31.
inline constexpr int64_t kMaxInt32Products = 133144;

inline constexpr absl::string_view kMomentumSlot[] = {"momentum"};

// A tensor that a recipe adds to the state of each operator with a weight, behind the operator's
// trainable tensors: trainable ones first. Statistics are kept of operators that train alone.
struct OperatorState {
  absl::string_view name;  // "input_range"
  TensorRole role = TensorRole::kInputRange;
  Shape (*shape)(const Shape& op_output) = nullptr;  // op_output: with the batch
  bool of_convolutions = false;                      // not of linear layers and embeddings

  friend bool operator==(const OperatorState&, const OperatorState&) = default;
};

// How a recipe holds each kind of value.
struct NumberFormat {
  DType activation = DType::kFloat32;  // between operators, and on a boundary on its way down
  DType parameter = DType::kFloat32;   // a weight from step to step, in check-points, on the wire
  DType weight = DType::kFloat32;      // a weight as the products read it
  DType error = DType::kFloat32;       // an activation's gradient, also on a boundary
  DType weight_gradient = DType::kFloat32;  // kInt32: kInt64 where a sum could overflow
  // Products of integers keep the scales of what they give (RescaleRule::keeps), as a state.
  bool keeps_scales = false;
  // What operators with weights keep beside their own state.
  absl::Span<const OperatorState> operator_state = {};
  // Products read FP32 errors as floats of few exponents.
  bool has_small_errors = false;
  // What the optimizer keeps beside each floating parameter, by name (Optimizer::slots).
  absl::Span<const absl::string_view> slots = kMomentumSlot;
  // What travels beside boundary tensors.
  absl::Span<const SideValue> beside = kSideValues;

  // Type of a boundary tensor: an activation on its way down, a gradient on its way up.
  DType boundary(Direction direction) const {
    return direction == Direction::kForward ? activation : error;
  }
  // Boundary tensors are mantissas and an exponent.
  bool integer_boundaries() const { return IsScaled(activation); }
  // Weights step by whole mantissas (GradientBits): no learning rate, no optimizer.
  bool integer_parameters() const { return IsScaled(parameter); }
  // Gradients have so few exponents that the loss's is multiplied with a scale (dials/loss_scale.h).
  bool scales_loss() const { return error == DType::kFloat16 || has_small_errors; }
  // Whether the bytes are the same on every numerics class: integers are exact, and products of
  // halves have one order of their sums everywhere (kernels/ir/arithmetic/half_products.h).
  bool is_exact() const {
    const auto all = [this](auto is) { return is(activation) && is(weight) && is(error); };
    return all(IsScaled) || all(IsHalf);
  }
  friend bool operator==(const NumberFormat&, const NumberFormat&) = default;
};

// Bytes in memory of a boundary tensor with the values beside it. Raw samples, which enter the first
// layer, are FP32 whatever the recipe, and nothing is beside them.
int64_t BoundaryBytes(const NumberFormat& format, const Shape& shape,
                      Direction direction = Direction::kForward);

// Where a value lies that stands behind a boundary tensor: any row of NumberFormat::beside that is
// not of_scaled and travels in the direction.
struct SidePlace {
  const SideValue* value = nullptr;
  size_t bytes = 0;
  size_t memory_offset = 0;   // from the beginning of the tensor
  size_t payload_offset = 0;  // from the end of the codec's bytes
};
std::vector<SidePlace> SidePlaces(const NumberFormat& format, const Shape& shape,
                                  Direction direction);
// Bytes of these values in a payload.
int64_t SidePayloadBytes(const NumberFormat& format, const Shape& shape, Direction direction);

// The state tensors of a layer in this format: LayerInfo::state, where an int8 weight is followed,
// after the trainable tensors of its op, by its exponent (TensorRole::kExponent, int32[1]) and, if
// scales are kept, by these (TensorRole::kKeptScales, int32[2][32]: two KeptScale), and the trainable
// tensors of an op with a weight by the format's operator_state.
std::vector<StateTensorSpec> StateOf(const LayerInfo& info, const NumberFormat& format);

// Whether the optimizer keeps state beside this tensor.
bool HasSlots(const StateTensorSpec& spec);
// The optimizer's state of a layer, `state` being its StateOf: beside each tensor that HasSlots, one
// tensor like it a slot. It has the parameter's name if it is a momentum, as files of always, else
// "PARAMETER.SLOT".
std::vector<StateTensorSpec> SlotsOf(const std::vector<StateTensorSpec>& state,
                                     const NumberFormat& format);

}  // namespace runnel
