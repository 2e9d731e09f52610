#include <algorithm>

#include "kernels/ir/optimizers/momentum_lead.h"
#include "kernels/ir/optimizers/optimizer_step.h"

namespace runnel::optimizers {

OptimizerScalars AdamWScalars(const StepContext& context);
OptimizerScalars NadamStaleScalars(const StepContext& context);
OptimizerScalars NadamStaleScalars(const StepContext& context) {
  const double beta1 = context.optimizer_parameters[0];
  const int64_t t = std::max<int64_t>(context.step + 1, 1);
  OptimizerScalars scalars = AdamWScalars(context);
  scalars.values[5] = static_cast<float>(1 / (1 - Power(beta1, t + DelayIn(context) + 1)));
  scalars.values[9] = static_cast<float>(MomentumLead(beta1, DelayIn(context)));
  return scalars;
}

}  // namespace runnel::optimizers
