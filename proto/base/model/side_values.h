#pragma once

// The small values that travel beside a boundary tensor, one row each: the exponent of a scaled
// tensor, the cost of gates and the sign of its price. An overflow flag, a loss scale or a count of
// tokens costs a row, and the name of the row in NumberFormat::beside of the runs that have it.
// Both ends of a link have the same format, so that they know count and bytes of each value before
// they meet it. Pure functions; any thread.
//
// The value of a row `of_scaled` is a part of a scaled tensor: it lies in the tensor's ScaleTail
// (number_format.h), and a codec sends it within its own bytes. All others lie behind the tensor in
// memory, each at a multiple of 64 bytes, and in a payload without gaps behind the codec's bytes,
// little-endian.

#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/ids.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/tensor/dtype.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

struct SideValue {
  absl::string_view name;
  DType type = DType::kFloat32;                     // or kInt32
  int64_t (*count)(const Shape& tensor) = nullptr;  // values beside a boundary tensor of this shape
  bool forward = false;                             // travels with activations
  bool backward = false;                            // travels with gradients
  bool of_scaled = false;
  // Each value lies in least..most, both finite: a NaN does not.
  double least = 0;
  double most = 0;

  bool travels(Direction direction) const {
    return direction == Direction::kForward ? forward : backward;
  }
  bool Admits(double value) const { return value >= least && value <= most; }
  // InvalidArgument names the row and the first value that it does not admit.
  absl::Status Check(absl::Span<const std::byte> values) const;
  // Fills `values` with one that the row admits: 0, or what is nearest to it.
  void FillNeutral(absl::Span<std::byte> values) const;
  friend bool operator==(const SideValue&, const SideValue&) = default;
};

inline int64_t OneATensor(const Shape&) { return 1; }
inline int64_t OneStateASample(const Shape& tensor) { return kLstmState * tensor[0]; }

// Exponents that come from outside lie in -kMaxExponent..kMaxExponent: far beyond what training
// comes to (a gradient of zeros loses some 8 a layer), so that sums of them never overflow.
inline constexpr int32_t kMaxExponent = 1 << 14;

inline constexpr SideValue kScaleExponent = {.name = "exponent",
                                             .type = DType::kInt32,
                                             .count = OneATensor,
                                             .forward = true,
                                             .backward = true,
                                             .of_scaled = true,
                                             .least = -kMaxExponent,
                                             .most = kMaxExponent};

// Of a run with a target of cost (training/dials/cost_target.h): what the gates in front of the
// boundary cost the micro-batch, in % of what all gates' blocks take in FP32.
inline constexpr SideValue kGateCost = {
    .name = "gate_cost", .count = OneATensor, .forward = true, .least = 0, .most = 100.001};
// Back from the loss: the sign of the price of that micro-batch's gates.
inline constexpr SideValue kPriceSign = {.name = "price_sign",
                                         .type = DType::kInt32,
                                         .count = OneATensor,
                                         .backward = true,
                                         .least = -1,
                                         .most = 1};

// Of a model whose layers hand a state on (OpKind::kCarriedState): a state of each sample, where
// the layers behind the boundary read one from in front of it, else zeros; and its gradient. |h| < 1,
// and each layer adds less than 1 to |c|.
inline constexpr SideValue kCarriedStates = {.name = "carried_state",
                                             .count = OneStateASample,
                                             .forward = true,
                                             .least = -kMaxLayers,
                                             .most = kMaxLayers};
inline constexpr SideValue kCarriedGradients = {.name = "carried_gradient",
                                                .count = OneStateASample,
                                                .backward = true,
                                                .least = -std::numeric_limits<float>::max(),
                                                .most = std::numeric_limits<float>::max()};

// The table: what stands beside the boundaries of every recipe.
inline constexpr SideValue kSideValues[] = {kScaleExponent};
// And of every run with a target of cost.
inline constexpr SideValue kCostSideValues[] = {kScaleExponent, kGateCost, kPriceSign};
// And of every model that carries a state, without a target and with one. States are whole lines of
// 64 bytes, so that in front of single values they leave no gap.
inline constexpr SideValue kStateSideValues[] = {kScaleExponent, kCarriedStates, kCarriedGradients};
inline constexpr SideValue kCostAndStateSideValues[] = {kScaleExponent, kCarriedStates,
                                                        kCarriedGradients, kGateCost, kPriceSign};

// The rows of a run.
absl::Span<const SideValue> SideValuesOf(bool has_cost_target, bool carries_state);

}  // namespace runnel
