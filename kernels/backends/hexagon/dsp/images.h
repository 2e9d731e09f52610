#pragma once

// Images in the form that products read: the values that 128 neighbouring outputs read through one
// tap of a window must lie in a few contiguous pieces. Where outputs are as many as pixels and next
// to each other, the images serve as they are, and masks remove values beyond an edge. Else they
// are copied once, with their padding and with the columns that a stride skips or a gradient leaves
// out.

#include "kernels/backends/hexagon/dsp/hvx.h"
#include "kernels/backends/hexagon/dsp/machine.h"

namespace runnel::hexagon {

// New layout of images (n, c, h, w): pixel (i, j) goes to row top + i * row_step and column left +
// j * column_step of a plane of rows x columns. Columns j of equal j % phases lie together.
struct ImageLayout {
  int top = 0, left = 0;
  int row_step = 1, column_step = 1;
  int rows = 1, columns = 1;
  int phases = 1;
  uint8_t fill = 0;  // value of all other places
};

struct LaidOutImages {
  const uint8_t* data = nullptr;
  uint32_t sample_bytes = 0, channel_bytes = 0, row_bytes = 0;
  int phases = 1;
  int phase_columns = 0;
  int output_row_step = 1;  // rows from one output row's first tap to the next one's

  // Offset from an output's place to the value that it reads this many rows and columns further on.
  int32_t OffsetOf(int channel, int row, int column) const {
    return channel * channel_bytes + row * row_bytes + (column % phases) * phase_columns +
           column / phases;
  }
};

// A lane's read: this many bytes from its place, kept by one of its tile's masks; mask 0 keeps all.
struct LaneRead {
  int32_t offset = 0;
  int32_t mask = 0;
};

// The images as they are.
LaidOutImages InPlace(const uint8_t* images, const DspImages& size);

// Masks of a tile of outputs first..first + 127 of images that lie in place: mask
// 1 + i * columns + j keeps the lanes whose row + top + i * step and column + left + j * step are
// pixels.
struct EdgeMasks {
  int rows = 1, columns = 1;
  int top = 0, left = 0;
  int step = 1;
};
// Images are at most so high and wide: rows and columns are signed bytes.
inline constexpr int kMaxMaskedSide = 100;
inline constexpr int kMaxMasks = 50;

// The masks of each tile, kept where a few tiles come again and again.
class TileMasks {
 public:
  // False: there is no memory.
  bool Begin(Machine& machine, const EdgeMasks& edges, const DspImages& grid);
  // Valid until the next call.
  const Vector* At(uint32_t first);

 private:
  static constexpr uint32_t kMostKept = 8;

  EdgeMasks edges_;
  DspImages grid_;
  uint32_t plane_ = 1;
  bool keeps_ = false;
  Vector* masks_ = nullptr;
  bool filled_[kMostKept] = {};
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

// Rows of positions begin..begin + count of images in place, counted over (sample, pixel), each of
// a channel: row c goes to rows + c * stride. Writes up to 127 bytes more; stride: at least 128
// more than `count`.
void GatherRows(const uint8_t* images, const DspImages& size, int channels, uint32_t begin,
                int count, uint8_t* rows, int stride);

// Reads one byte a lane into a vector; lanes behind the segments' hold anything.
class LaneReader {
 public:
  LaneReader(const uint8_t* base, const Segment* segments, int count, const Vector* masks = nullptr)
      : base_(base),
        segments_(segments),
        count_(count),
        masks_(masks == nullptr ? &all_ : masks),
        all_(SplatBytes(-1)) {}

  int segments() const { return count_; }
  // kSegments: as many as there are; 0: any number.
  template <int kSegments = 0>
  RUNNEL_INLINE Vector Read(const LaneRead& read) {
    return Q6_V_vand_VV(Read<kSegments>(read.offset), masks_[read.mask]);
  }
  template <int kSegments = 0>
  RUNNEL_INLINE Vector Read(int32_t offset) {
    const uint8_t* base = base_ + offset;
    // Copies: a store to the row could be one to this object, for all that the compiler knows.
    const Segment* segment = segments_;
    const int count = count_;
    const Vector first = Load(base + segment->source);
    if (kSegments == 1 || (kSegments == 0 && count == 1)) return first;
    if (kSegments > 1) {
      Vector value = first;
      for (int i = 1; i < kSegments; ++i) {
        const int lane = segment[i].lane;
        value = Q6_V_vmux_QVV(Q6_Q_vsetq_R(lane), value, Load(base + segment[i].source - lane));
      }
      return value;
    }
    uint8_t* row = row_;
    for (const Segment* end = segment + count; segment < end; ++segment) {
      Store(row + segment->lane, Load(base + segment->source));
    }
    return *reinterpret_cast<const Vector*>(row);
  }

 private:
  const uint8_t* base_;
  const Segment* segments_;
  int count_;
  const Vector* masks_;
  Vector all_;
  // A piece's vector may reach past the last lane.
  alignas(kVectorBytes) uint8_t row_[2 * kVectorBytes];
};

}  // namespace runnel::hexagon
