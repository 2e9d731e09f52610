#pragma once

// Images as the products read them: copied once, with their padding and, between the columns that a
// stride skips or a gradient leaves out, so that what 128 neighbouring outputs read through one tap
// of a window lies in a few contiguous pieces.

#include "kernels/hexagon/dsp/hvx.h"
#include "kernels/hexagon/dsp/machine.h"

namespace runnel::hexagon {

// How images (n, c, h, w) are laid out anew: pixel (i, j) goes to row top + i * row_step and column
// left + j * column_step of a plane of rows x columns. Columns j of equal j % phases lie together.
struct ImageLayout {
  int top = 0, left = 0;
  int row_step = 1, column_step = 1;
  int rows = 1, columns = 1;
  int phases = 1;
  uint8_t fill = 0;  // of all other places
};

struct LaidOutImages {
  const uint8_t* data = nullptr;
  uint32_t sample_bytes = 0, channel_bytes = 0, row_bytes = 0;
  int phases = 1;
  int phase_columns = 0;
  int output_row_step = 1;  // rows from one output row's first tap to the next one's

  // From an output's place to what it reads at so many rows and columns further on.
  uint32_t OffsetOf(int channel, int row, int column) const {
    return channel * channel_bytes + row * row_bytes + (column % phases) * phase_columns +
           column / phases;
  }
};

// Copies them; false: there is no memory.
bool LayOut(Machine& machine, const uint8_t* images, const DspImages& size,
            const ImageLayout& layout, LaidOutImages& result);

// Bytes that lie side by side and become side by side lanes.
struct Segment {
  uint32_t source = 0;
  int lane = 0;
  int count = 0;
};

// Outputs first..first + count, counted over (sample, row, column) of `grid` (its c is not used).
// Gives the number of segments, at most `count`.
int SegmentsOf(const LaidOutImages& images, const DspImages& grid, uint32_t first, int count,
               Segment* segments);

// Reads one byte a lane into a vector; lanes behind the segments' hold anything.
class LaneReader {
 public:
  LaneReader(const uint8_t* base, const Segment* segments, int count)
      : base_(base), segments_(segments), count_(count) {}

  RUNNEL_INLINE Vector Read(uint32_t offset) {
    const uint8_t* base = base_ + offset;
    if (count_ == 1) return Load(base + segments_[0].source);
    for (int i = 0; i < count_; ++i) {
      Store(row_ + segments_[i].lane, Load(base + segments_[i].source));
    }
    return *reinterpret_cast<const Vector*>(row_);
  }

 private:
  const uint8_t* base_;
  const Segment* segments_;
  int count_;
  // A piece's vector may reach past the last lane.
  alignas(kVectorBytes) uint8_t row_[2 * kVectorBytes];
};

}  // namespace runnel::hexagon
