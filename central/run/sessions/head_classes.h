#pragma once

// Classes that a model's head has an output for, but has not seen: their bias is so low that the
// softmax gives them exactly 0, and their gradient is 0. So they are part of the weights, and of
// every check-point. Pure functions; any thread.

#include <vector>

#include "absl/status/status.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"

namespace runnel {

// exp(kUnseenBias + x) is 0 in FP32 for every logit x that trains; FP16 holds it.
inline constexpr float kUnseenBias = -1e4f;

// InvalidArgument: the model does not end in a linear operator with a bias.
absl::Status CheckHead(const ModelSpec& model);

// Classes that are not in `after` get kUnseenBias; those in `after` and not in `before` begin with
// zero weights and the mean bias of those in `before`. Errors as CheckHead; state: all layers in FP32.
absl::Status OpenClasses(const ModelSpec& model, const std::vector<bool>& before,
                         const std::vector<bool>& after, ModelState& state);

}  // namespace runnel
