#pragma once

// Weights as the products want them, packed once a version.

#include "kernels/backends/hexagon/dsp/machine.h"

namespace runnel::hexagon {

enum class PackedKind : uint32_t { kConvForward = 1, kConvInputGradient, kLinear, kLinearGradient };

// The memory of the packed form of the operation's weights, in[1]; `fresh` if it has to be filled.
// Of an unknown version it is the operation's own. It stays until the next call. Null: there is no
// memory.
uint8_t* PackedWeights(Machine& machine, const DspOp& op, PackedKind kind, uint32_t bytes,
                       bool& fresh);

}  // namespace runnel::hexagon
