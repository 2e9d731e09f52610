#pragma once

// Forward and input-gradient of one group as products of matrices without im2col. A row of A is the
// pixel of the source that an output's run begins at; the reduction goes over segments of (tap row,
// neighbouring taps, channels), contiguous in the source and in the packed weights. Outputs are
// taken class by class (axis.h), so that all rows of a tile have the same segments and taps over
// the padding cost nothing.

#include <cstdint>

#include "kernels/backends/cpu/int8/axis.h"
#include "kernels/backends/cpu/int8/int8_conv.h"
#include "kernels/backends/cpu/int8/sums_sink.h"
#include "kernels/backends/cpu/int8/workspace_layout.h"
#include "kernels/ir/conv_shape.h"

namespace runnel::cpu {

// One group. Sources are x (forward) or dy (input-gradient).
struct GatherProblem {
  bool input_gradient = false;
  int64_t batch = 1;
  AxisShape h, w;
  int64_t source_h = 1, source_w = 1;
  int64_t source_c = 1;      // channels of the group
  int64_t source_pixel = 1;  // elements from a pixel to the next
  int64_t out_h = 1, out_w = 1;
  int64_t out_c = 1;  // channels of the group
  int64_t out_pixel = 1;
  int64_t weight_row = 1;  // elements from an OHWI row (one out_c of the forward) to the next
  // A pixel of the source has more channels than lie between it and the next (MergeTapsOfRows).
  bool pixels_overlap = false;

  int64_t taps() const { return h.kernel * w.kernel; }
};

GatherProblem GatherProblemOf(const ConvShape& shape, bool input_gradient);

// Codes in place of sums; with kernels that have codes_tiles. Arrays by out channel have whole
// panels.
struct GatherCoding {
  Int8TileCoding tile;               // scales of all out channels
  const int32_t* offsets = nullptr;  // added to each sum
  const int8_t* other = nullptr;     // where the coding adds: as the result lies
  int8_t* codes = nullptr;           // the result
};

// The forward of few channels, whose taps of a row become one tap of kernel_w * in_c channels: they
// lie side by side. So the reduction has whole groups with less padding. The source has no padding
// but in memory, and in_w is a multiple of stride_w.
GatherProblem MergeTapsOfRows(const ConvShape& shape);

struct GatherOperands {
  const int8_t* source = nullptr;
  const int8_t* weights = nullptr;    // OHWI, the group's first row
  const std::byte* packed = nullptr;  // or all panels, packed by PackAllPanels
  const std::byte* next = nullptr;    // operand of the next product, as long as a panel; or null
  int32_t* out = nullptr;             // or null with sink, rescale or coding
  SumsSink* sink = nullptr;           // or null
  const GatherCoding* coding = nullptr;
  const Int8Rescale* rescale = nullptr;
  int8_t* rescaled = nullptr;     // with rescale: the result
  int64_t* saturated = nullptr;   // with rescale: incremented by the number of saturated sums
  uint32_t* max_lanes = nullptr;  // kMaxLanes, raised to |sum|; or null. Not null with rescale
};

int64_t GatherWorkspaceBytes(const Int8Kernels& kernels, const GatherProblem& problem, int threads,
                             bool prepacked);
void RunGather(const Int8Context& context, const GatherProblem& problem,
               const GatherOperands& operands);

int64_t AllPanelsBytes(const Int8Kernels& kernels, const GatherProblem& problem);
void PackAllPanels(const Int8Kernels& kernels, const GatherProblem& problem, const int8_t* weights,
                   std::byte* packed);

}  // namespace runnel::cpu
