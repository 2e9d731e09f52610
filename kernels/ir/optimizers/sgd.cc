#include "kernels/ir/optimizers/optimizer_step.h"

namespace runnel::optimizers {

OptimizerScalars SgdScalars(const StepContext& context);
OptimizerScalars SgdScalars(const StepContext& context) {
  return {{static_cast<float>(context.learning_rate), static_cast<float>(context.momentum),
           static_cast<float>(context.weight_decay)}};
}

}  // namespace runnel::optimizers
