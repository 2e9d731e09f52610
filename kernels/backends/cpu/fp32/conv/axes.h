#pragma once

// A convolution along one spatial axis, in either direction, as passes over a source, for the
// matrix-product driver (product.h) and the depthwise kernels.

#include <cstdint>
#include <vector>

namespace runnel::fp32 {

// Targets target_begin + i * target_step, i < count. Each reads `taps` source positions from
// source_begin + i * source_step on, source_gap from one to the next; the j-th of them meets kernel
// position tap_begin + j * tap_step.
struct AxisPass {
  int64_t target_begin = 0, target_step = 1, count = 0;
  int64_t source_begin = 0, source_step = 1;
  int64_t taps = 0, tap_begin = 0, tap_step = 1;
  int64_t source_gap = 1;
};

// Neighbouring targets [begin, begin + count) of a pass whose taps [tap, tap + taps) lie inside the
// source; the others would read padding.
struct AxisPart {
  int64_t begin = 0, count = 0;
  int64_t tap = 0, taps = 0;
};
// All targets of a pass, in ascending order.
std::vector<AxisPart> PartsInside(const AxisPass& pass, int64_t source);

struct Axis {
  int64_t source = 1;         // positions of the source
  int64_t target = 1;         // positions of the target
  int64_t low = 0, high = 0;  // source positions that are read: [low, high)
  std::vector<AxisPass> passes;

  // Whether no value outside the source is read.
  bool inside() const { return low >= 0 && high <= source; }
};

// A convolution's window along the axis. Padding is in front; behind lies what `out` leaves.
struct AxisWindow {
  int64_t in = 1, out = 1;  // positions of x and y
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
};
// Source x, target y.
Axis ForwardAxis(const AxisWindow& window);
// Source dy, target dx: one pass for each remainder of (position + padding) by the stride. Targets
// that no kernel position reaches belong to a pass without taps.
Axis GradientAxis(const AxisWindow& window);

}  // namespace runnel::fp32
