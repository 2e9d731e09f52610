#pragma once

// Products of one number type (products.h). Private to kernels/backends/small.

#include "absl/status/status.h"
#include "kernels/backends/small/products.h"

namespace runnel::small {

// Rule: Float32Rule, WideRule<F16>, WideRule<Bf16>, NarrowRule<F16>. Internal: the choice names no kernel of the type.
template <class Rule>
absl::Status RunGroups(const host::Call& call, const ProductShape& shape,
                       const ProductChoice& choice, NearMemory l1);

}  // namespace runnel::small
