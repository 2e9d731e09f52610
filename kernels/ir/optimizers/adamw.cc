#include <algorithm>
#include <cmath>

#include "kernels/ir/optimizers/momentum_lead.h"
#include "kernels/ir/optimizers/optimizer_step.h"

namespace runnel::optimizers {

OptimizerScalars AdamWScalars(const StepContext& context);
OptimizerScalars AdamWScalars(const StepContext& context) {
  const auto& [beta1, beta2, epsilon, unused] = context.optimizer_parameters;
  // A look-ahead before the first step has moments of zero, which nothing corrects.
  const int64_t t = std::max<int64_t>(context.step + 1, 1);
  OptimizerScalars scalars;
  size_t i = 0;
  for (const double value :
       {context.learning_rate, beta1, 1 - beta1, beta2, 1 - beta2, 1 / (1 - Power(beta1, t)),
        1 / std::sqrt(1 - Power(beta2, t)), epsilon, context.weight_decay})
    scalars.values[i++] = static_cast<float>(value);
  return scalars;
}

}  // namespace runnel::optimizers
