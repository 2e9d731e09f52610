#include "kernels/ir/optimizers/momentum_lead.h"
#include "kernels/ir/optimizers/optimizer_step.h"

namespace runnel::optimizers {

OptimizerScalars NagStaleScalars(const StepContext& context);
OptimizerScalars NagStaleScalars(const StepContext& context) {
  return {{static_cast<float>(context.learning_rate), static_cast<float>(context.momentum),
           static_cast<float>(context.weight_decay),
           static_cast<float>(MomentumLead(context.momentum, DelayIn(context)))}};
}

}  // namespace runnel::optimizers
