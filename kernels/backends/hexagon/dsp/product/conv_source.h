#pragma once

// Sources of a convolution's lanes: images and, by k = (tap, channel) of a group, the offset in
// them.

#include "kernels/backends/hexagon/dsp/images.h"

namespace runnel::hexagon {

enum class Pass : uint8_t { kForward, kInputGradient };

struct ConvSource {
  LaidOutImages images;
  DspImages size;    // size as they came
  int channels = 1;  // channels of a group
  int taps = 1;
  // As many outputs as pixels: images stay as they came, and masks remove values beyond an edge.
  bool in_place = false;
  EdgeMasks edges;
  // Furthest lanes that a tap reads before and behind its own, in place.
  int before = 0, behind = 0;
  uint32_t group_bytes = 0;  // bytes from group to group

  // Offset from a lane's place to the value that it reads through a tap, in place.
  int OffsetOf(int row, int column) const {
    return (edges.top + row * edges.step) * size.w + edges.left + column * edges.step;
  }
  // Tap row * columns + column.
  static int MaskOf(int tap) { return 1 + tap; }
};

// Makes the source of x, or of dy for the input-gradient. False: there is no memory.
bool MakeSource(Machine& machine, const DspOp& op, Pass pass, const DspTensor& images,
                ConvSource& source);
// The reads of each k of the first group, and kSpareReads more, if its channels are this many bytes
// apart. Null: there is no memory.
inline constexpr int kSpareReads = kVectorWords;
const LaneRead* MakeReads(Machine& machine, const DspOp& op, Pass pass, const ConvSource& source,
                          uint32_t channel_bytes);
// Steps of a tile of B in VTCM; the products read one step ahead.
int TileSteps(uint32_t vtcm_bytes);

}  // namespace runnel::hexagon
