#pragma once

// Sizes of weights in their packed form, for the kernels and for the host's plan of evictions.
// Freestanding, for both compilers.

#include <stdint.h>

#include "kernels/backends/hexagon/op_list.h"

namespace runnel::hexagon {

// Weights as rows of scalars, `rows` of `depth` for each group (dsp/product.h's PackedRows): first
// the starts, since products read ahead, then the words.
inline uint32_t PackedStartBytes(int groups, int rows) {
  return (groups * rows * 4 + 127) / 128 * 128;
}
inline uint32_t PackedRowBytes(int groups, int rows, int depth) {
  return PackedStartBytes(groups, rows) + groups * rows * ((depth + 3) / 4) * 4;
}

// Weights as tiles of 128, 64 or 32 lanes, of `steps` vectors for each 32 of them.
inline uint32_t PackedTileBytes(int lanes, int steps) {
  constexpr int kLanes = 128, kVectorBytes = 128;
  const int rest = lanes % kLanes;
  const int vectors = lanes / kLanes * 4 + (rest == 0 ? 0 : rest <= 32 ? 1 : rest <= 64 ? 2 : 4);
  return static_cast<uint32_t>(vectors) * steps * kVectorBytes;
}
// Steps of a linear layer's forward, which packs 32 at a time, and of its input-gradient.
inline int LinearForwardSteps(int inputs) { return (inputs + 127) / 128 * 32; }
inline int LinearGradientSteps(int outputs) { return (outputs + 3) / 4; }

// Packed size of an operation's weights; 0: it packs none.
inline uint32_t PackedBytesOf(const DspOp& op) {
  const int group_in = op.x.c / op.groups, group_out = op.y.c / op.groups;
  const int taps = op.window.kh * op.window.kw;
  switch (op.code) {
    case DspCode::kConvForward:
      return PackedRowBytes(op.groups, group_out, taps * group_in);
    case DspCode::kConvInputGradient:
      return PackedRowBytes(op.groups, group_in, taps * group_out);
    case DspCode::kLinearForward:
      return PackedTileBytes(op.y.c, LinearForwardSteps(op.x.c));
    case DspCode::kLinearInputGradient:
      return PackedTileBytes(op.x.c, LinearGradientSteps(op.y.c));
    default:
      return 0;
  }
}

}  // namespace runnel::hexagon
