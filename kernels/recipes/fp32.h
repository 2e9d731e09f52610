#pragma once

// Plain single-precision training with SGD and momentum.

#include "kernels/recipe.h"

namespace runnel {

const Recipe& Fp32Recipe();

}  // namespace runnel
