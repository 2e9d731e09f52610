#pragma once

// The initial state of a model. Every draw is keyed by seed, layer and element, and is the same on
// every processor: the device that trains a layer draws it, so no initial state crosses a network.

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"

namespace runnel {

// All layers of `model`: weights and biases as OpSpec::init says, scale 1, shift 0, running mean 0,
// running variance 1, slots zeros, no encoder state. Tensor t (its position in LayerInfo::state)
// of layer l draws element e (row-major) from CounterRandom(seed, kInitialWeights, l, t): uniform
// ones as (2 Uniform(e) - 1) b with b = 1 / sqrt(in / groups * kernel area), normal ones as
// Normal(e) times the deviation; computed in double, rounded to FP32 once. An int8 weight is that
// draw quantised (QuantizeRule::kFullRange), with its exponent behind it; kept
// scales are zeros. A pure function: any
// thread. InvalidArgument: the model's shapes do not fit (InferShapes says where).
absl::StatusOr<ModelState> InitialState(const ModelSpec& model, uint64_t seed,
                                        const NumberFormat& format = {});

// A tensor to begin with in place of a draw, of the spec's shape, in FP32 or in the spec's type;
// null: it is drawn.
using GivenTensorFn = std::function<const TensorData*(const StateTensorSpec& spec)>;

// One layer of the initial state. info: the layer's, of InferShapes with any batch size. given: asked
// for each tensor; FP32 weights of integer recipes are quantised as draws are.
LayerState InitialLayer(const ModelSpec& model, const LayerInfo& info, int layer, uint64_t seed,
                        const NumberFormat& format = {}, const GivenTensorFn& given = nullptr);

}  // namespace runnel
