#pragma once

// What optimizers with Nesterov's momentum compute from a stage's staleness. Pure functions; any
// thread.

#include <cstdint>

#include "kernels/ir/step_context.h"

namespace runnel::optimizers {

// Steps between a micro-batch's forward and its own: behind the row's parameters, the last of
// StepContext::optimizer_parameters.
int64_t DelayIn(const StepContext& context);

// beta + beta^2 + ... + beta^(delay + 1): how far a change of a momentum that decays by beta will
// have moved the weights, in units of itself, in the `delay` steps until a gradient's own and in
// that one. Nesterov's look-ahead is the case of delay 0. Weights that stand so far ahead make a
// gradient that is `delay` steps old one of about where it is used (after Ajanthan et al.,
// "Nesterov method for asynchronous pipeline parallel optimization", 2025).
double MomentumLead(double beta, int64_t delay);

// A delay with which momentum does not lead at all: steps are `sgd`'s and `adamw`'s.
inline constexpr int64_t kLeadsNowhere = -1;

// base^exponent from products only: the same on every machine, which a C library's pow is not.
double Power(double base, int64_t exponent);

}  // namespace runnel::optimizers
