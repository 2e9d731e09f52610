#include <vector>

#include "kernels/ir/optimizers/element_steps.h"
#include "kernels/ir/optimizers/momentum_lead.h"
#include "kernels/ir/optimizers/optimizer_step.h"

namespace runnel {
namespace optimizers {

#define RUNNEL_OPTIMIZER(Id, ...) OptimizerScalars Id##Scalars(const StepContext& context);
#include "proto/base/training/optimizers.inc"
#undef RUNNEL_OPTIMIZER

double Power(double base, int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) power *= base;
  }
  return power;
}

double MomentumLead(double beta, int64_t delay) {
  double lead = 0, term = 1;
  for (int64_t k = 0; k <= delay; ++k) lead += term *= beta;
  return lead;
}

int64_t DelayIn(const StepContext& context) {
  return static_cast<int64_t>(context.optimizer_parameters.back());
}

namespace {

template <OptimizerScalars (*kScalars)(const StepContext&)>
OptimizerScalars WithGradientFactor(const StepContext& context) {
  OptimizerScalars scalars = kScalars(context);
  scalars.gradient_factor = static_cast<float>(context.gradient_factor / context.loss_scale);
  return scalars;
}

template <int kSlots, ElementDirection kDirection>
void LookAhead(const OptimizerScalars& scalars, const float* weights, const float* const* slots,
               float distance, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    float own[kSlots];
    for (int k = 0; k < kSlots; ++k) own[k] = slots[k][i];
    out[i] = weights[i] - distance * kDirection(weights[i], own, scalars.values);
  }
}

}  // namespace
}  // namespace optimizers

namespace {

std::vector<OptimizerStep> MakeSteps() {
  using namespace optimizers;
  std::vector<OptimizerStep> steps = {
#define RUNNEL_OPTIMIZER(Id, ...)                                                    \
  OptimizerStep{.scalars = WithGradientFactor<Id##Scalars>,                          \
                .update = optimizers::Update<OptimizerStep, k##Id##Slots, Id##Step>, \
                .look_ahead = optimizers::LookAhead<k##Id##Slots, Id##Direction>},
#include "proto/base/training/optimizers.inc"
#undef RUNNEL_OPTIMIZER
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].optimizer = &Optimizers()[i];
    steps[i].row = static_cast<int>(i);
  }
  return steps;
}

}  // namespace

absl::Span<const OptimizerStep> OptimizerSteps() {
  static const auto& steps = *new std::vector<OptimizerStep>(MakeSteps());
  return steps;
}

const OptimizerStep& StepOf(const Optimizer* optimizer) {
  return OptimizerSteps()[optimizer == nullptr
                              ? 0
                              : static_cast<size_t>(optimizer - Optimizers().data())];
}

}  // namespace runnel
