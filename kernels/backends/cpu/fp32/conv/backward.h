#pragma once

// Both gradients of a convolution, block by block: a block of the output's gradient is made once,
// and used for the weight and for the input while it lies in the cache.

#include <optional>

#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/fp32/conv/product.h"
#include "kernels/backends/cpu/fp32/conv/weight_gradient.h"
#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/cpu/fp32/row_source.h"

namespace runnel::fp32 {

// Roles of the calls of a backward step; null where the step has none. In the program's order:
struct BackwardRoles {
  explicit BackwardRoles(Calls calls);

  const Call* activation = nullptr;  // gradient of the activation behind the batch norm
  const Call* norm = nullptr;        // batch norm behind the convolution: its dx is dy
  const Call* x_norm = nullptr;      // batch norm and activation that make the convolution's input
  const Call* x_activation = nullptr;
  const Call* weight = nullptr;  // the convolution's gradients; one of them at least
  const Call* input = nullptr;
  // The batch norm before the convolution, whose sums can be taken as dx is made.
  const Call* next_activation = nullptr;
  const Call* next_norm = nullptr;
};

struct ConvBackwardParts {
  RowSource dy;
  RowSource x;
  std::optional<WeightGradient> weight;
  std::optional<ConvProduct> input;
  bool depthwise = false;
  const Call* next_norm = nullptr;
  Normalisation next;
};

void RunConvBackward(const Call& call, const ConvBackwardParts& parts);

}  // namespace runnel::fp32
