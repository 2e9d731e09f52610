#pragma once

// The pixels of a tile of outputs and around it, four channels to a word: a tap then reads whole
// words beside the lanes' own, so that tiles of B are copies with edges masked out. For images in
// place whose channels are a multiple of four.

#include "kernels/backends/hexagon/dsp/product/conv_source.h"

namespace runnel::hexagon {

class LaneQuads {
 public:
  static bool Fits(const ConvSource& source);
  // False: there is no memory. `source` has to stay.
  bool Begin(Machine& machine, const ConvSource& source);
  // Fills in a group's channels, for outputs first..first + lanes.
  void Fill(int group, uint32_t first, int lanes);
  // Steps step..step + count of the tile, k = (tap, channel), as product.h has B.
  void Pack(int step, int count, int lanes, const Vector* masks, Vector* b) const;

 private:
  template <int kVectors>
  void PackTaps(int step, int count, const Vector* masks, Vector* b) const;

  const ConvSource* source_ = nullptr;
  int quads_ = 0;
  int lead_ = 0;    // words before the first lane's
  int stride_ = 0;  // words from quad to quad
  int32_t* words_ = nullptr;
  int row_stride_ = 0;
  uint8_t* rows_ = nullptr;  // a few channels on their way
};

}  // namespace runnel::hexagon
