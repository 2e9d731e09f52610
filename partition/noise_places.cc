#include "partition/noise_places.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace runnel {
namespace {

// What its gradient does to another one does not depend on its input.
bool IsLinear(OpKind kind) {
  switch (kind) {
    case OpKind::kConv:
    case OpKind::kLinear:
    case OpKind::kDropout:
    case OpKind::kAvgPool:
    case OpKind::kGlobalAvgPool:
    case OpKind::kAdd:
    case OpKind::kFlatten:
    case OpKind::kConcat:
    case OpKind::kSlice:
    case OpKind::kShuffle:
      return true;
    default:
      return false;
  }
}

// Operators behind which tensors are rows of features, (N,F) or (N,T,F), in place of (N,C,...).
bool MakesRows(OpKind kind) {
  return kind == OpKind::kLinear || kind == OpKind::kEmbedding || kind == OpKind::kAttention ||
         kind == OpKind::kLayerNorm;
}

// Positions of each channel of (N,C,...).
int64_t PositionsOf(const Shape& shape) {
  int64_t positions = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) positions *= shape[axis];
  return positions;
}

// An operator with the positions that its output has; behind kFlatten those of its input.
struct Step {
  OpKind kind;
  int64_t input_positions = 1;
  int64_t positions = 1;
};

// By layer.
std::vector<std::vector<Step>> StepsOf(const ModelSpec& model, absl::Span<const LayerInfo> infos) {
  std::vector<std::vector<Step>> steps(infos.size());
  int64_t positions = PositionsOf(infos.front().input);
  bool in_rows = false;
  for (size_t layer = 0; layer < infos.size(); ++layer) {
    const std::vector<OpSpec>& ops = model.layers[layer].ops;
    for (size_t i = 0; i < ops.size(); ++i) {
      const OpKind kind = ops[i].kind;
      in_rows = MakesRows(kind) || (in_rows && kind != OpKind::kConv);
      const int64_t before = positions;
      if (kind != OpKind::kFlatten)
        positions = in_rows ? 1 : PositionsOf(infos[layer].op_outputs[i]);
      steps[layer].push_back({kind, before, positions});
    }
  }
  return steps;
}

// Errors at positions that are summed add up less than what they are errors of: their variance is
// between a P-th of its, if that is the same at all of P positions, and as large, if it has no sign
// in common. kGradientsAverage is in the middle; kActivationsAverage was measured.
constexpr double kGradientsAverage = 1.0 / 2;
constexpr double kActivationsAverage = 1.0 / 3;

NoiseWeights Averaged(NoiseWeights weights, int64_t positions, double exponent) {
  const double by = std::pow(static_cast<double>(positions), exponent);
  weights.apart /= by;
  weights.root /= by;
  return weights;
}

}  // namespace

NoisePlaces::NoisePlaces(const ModelSpec& model, absl::Span<const LayerInfo> infos)
    : forward_(infos.size()), backward_(infos.size()) {
  const std::vector<std::vector<Step>> steps = StepsOf(model, infos);
  // Of the layers behind: whether all is linear, and over how many positions of each channel the
  // network takes the mean in the end.
  bool is_linear = true, has_end = false;
  int64_t averaged = 1;
  bool is_averaged_next = false;
  for (size_t layer = infos.size(); layer-- > 0;) {
    NoiseWeights forward = kActivationNoise;
    if (is_linear) forward.root = 0;
    forward_[layer] = Averaged(forward, averaged, kActivationsAverage);
    // The gradient of a mean is the same at all positions, and so is then its error.
    const int64_t own = is_averaged_next ? 1 : steps[layer].back().positions;
    // None goes to layers that are not trained.
    if (static_cast<int>(layer) >= model.frozen_front())
      backward_[layer] = Averaged(kGradientNoise, own, kGradientsAverage);
    for (auto step = steps[layer].rbegin(); step != steps[layer].rend(); ++step) {
      is_linear = is_linear && IsLinear(step->kind);
      if (step->kind != OpKind::kGlobalAvgPool && step->kind != OpKind::kFlatten) continue;
      if (!has_end && step->kind == OpKind::kGlobalAvgPool) averaged = step->input_positions;
      has_end = true;
    }
    is_averaged_next = steps[layer].front().kind == OpKind::kGlobalAvgPool;
  }
}

NoiseWeights NoisePlaces::At(int layer, Direction direction) const {
  const bool forward = direction == Direction::kForward;
  const std::vector<NoiseWeights>& known = forward ? forward_ : backward_;
  if (known.empty()) return forward ? kActivationNoise : kGradientNoise;
  return known[static_cast<size_t>(layer)];
}

}  // namespace runnel
