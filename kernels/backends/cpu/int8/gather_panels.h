#pragma once

// The problems of a gathering convolution (gather_conv.h), and its weights in panels.

#include <cstdint>

#include "kernels/backends/cpu/int8/gather_layout.h"

namespace runnel::cpu {

// Panel p of the group's weights (OHWI, its first row), then what each slot adds to the start of a
// tile: int32 [slot][width].
void PackPanel(const GatherSizes& sizes, const int8_t* weights, int64_t p, int8_t* panel);

}  // namespace runnel::cpu
