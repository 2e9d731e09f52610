#include "kernels/backends/cpu/int8/axis.h"

#include <algorithm>

namespace runnel::cpu {
namespace {

AxisRun MakeRun(int64_t source, int64_t slot, int64_t count) {
  if (count <= 0) return {};
  return {static_cast<int32_t>(source), static_cast<int32_t>(slot), static_cast<int32_t>(count)};
}

}  // namespace

AxisRun ForwardRun(const AxisShape& shape, int64_t o) {
  const int64_t first = o * shape.stride - shape.pad;
  const int64_t begin = std::max<int64_t>(0, -first);
  const int64_t end = std::min(shape.kernel, shape.in - first);
  return MakeRun(first + begin, begin, end - begin);
}

AxisRun InputGradientRun(const AxisShape& shape, int64_t i) {
  const int64_t place = i + shape.pad;
  const int64_t residue = place % shape.stride;
  if (residue >= shape.kernel) return {};
  // Taps of this residue: residue + stride * 0 .. residue + stride * (taps - 1).
  const int64_t taps = (shape.kernel - 1 - residue) / shape.stride + 1;
  const int64_t quotient = place / shape.stride;  // source of tap `residue`; others lie before it
  const int64_t last_tap = std::min(taps - 1, quotient);
  const int64_t first_tap = std::max<int64_t>(0, quotient - (shape.out - 1));
  int64_t slot = 0;  // of the residues before
  for (int64_t r = 0; r < residue; ++r) slot += (shape.kernel - 1 - r) / shape.stride + 1;
  return MakeRun(quotient - last_tap, slot + taps - 1 - last_tap, last_tap - first_tap + 1);
}

int64_t InputGradientTap(const AxisShape& shape, int64_t slot) {
  for (int64_t residue = 0;; ++residue) {
    const int64_t taps = (shape.kernel - 1 - residue) / shape.stride + 1;
    if (slot < taps) return residue + shape.stride * (taps - 1 - slot);
    slot -= taps;
  }
}

int64_t MaxAxisClasses(const AxisShape& shape, int64_t outputs) {
  return std::min(outputs, 2 * (shape.kernel + shape.pad) + shape.stride + 2);
}

void SortByClass(Axis& axis) {
  axis.class_count = 0;
  int32_t placed = 0;
  axis.class_begin[0] = 0;
  for (int32_t i = 0; i < axis.outputs; ++i) {
    // The first of a class places all of it.
    bool seen = false;
    for (int c = 0; c < axis.class_count && !seen; ++c) {
      seen = axis.ClassRun(c).SameClass(axis.runs[i]);
    }
    if (seen) continue;
    for (int32_t j = i; j < axis.outputs; ++j) {
      if (axis.runs[j].SameClass(axis.runs[i])) axis.order[placed++] = j;
    }
    axis.class_begin[++axis.class_count] = placed;
  }
}

}  // namespace runnel::cpu
