#pragma once

// NITI: integer-only INT8 training (arXiv 2009.13108), in the three profiles that exist. Every
// tensor is int8 with one exponent; no operator has a bias or a batch norm; the step's size is the
// number of bits that a gradient keeps (GradientBits).

#include "kernels/recipe.h"

namespace runnel {

const Recipe& NitiMandhelingRecipe();  // "niti": Mandheling's CPU
const Recipe& Niti2020Recipe();        // "niti:niti2020"
const Recipe& Niti2021Recipe();        // "niti:niti2021"

}  // namespace runnel
