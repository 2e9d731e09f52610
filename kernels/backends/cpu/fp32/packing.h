#pragma once

// Weights to and from the packed form of matrix products.

#include <cstdint>
#include <vector>

#include "kernels/backends/cpu/fp32/kernel_table.h"

namespace runnel::fp32 {

// Panels of `columns` columns, as even as registers allow. The packed width is that of the last
// panel's offset plus its registers.
std::vector<Panel> MakePanels(const Kernels& kernels, int64_t columns);
int64_t PackedWidth(const Kernels& kernels, const std::vector<Panel>& panels);

// Bytes of packed weights, or of a weight-gradient's sums, that a kernel holds at a time: they fit
// the second-level cache, with little else beside them.
inline constexpr int64_t kMaxPackedBytes = 2 << 20;
enum class Packing : uint8_t { kWhole, kByRuns };
// `panels` in runs of neighbours: one, or as many as it takes that none is larger than
// kMaxPackedBytes with `depth` rows unless it is a single panel. begin and offset of a run's panels
// count from its first column.
struct PanelRun {
  int64_t begin = 0;    // first column
  int64_t columns = 0;  // columns that exist
  std::vector<Panel> panels;
};
std::vector<PanelRun> CutPanels(const Kernels& kernels, const std::vector<Panel>& panels,
                                int64_t depth, Packing packing);

// Kernel positions in the order in which they lie in the depth of a product.
using Taps = std::vector<int64_t>;

// weight (outs, ins, taps) as B of x * B: row (tap, in) column out. `tap_count` is that of the
// weight; `temporary` holds 16 * tap_count * 64 floats.
void PackForward(const Kernels& kernels, const float* weight, int64_t ins, int64_t tap_count,
                 const Taps& taps, const std::vector<Panel>& panels, float* temporary,
                 float* packed);
// weight (outs, ins, taps) as B of dy * B: row (tap, out) column in.
void PackBackward(const Kernels& kernels, const float* weight, int64_t outs, int64_t ins,
                  int64_t tap_count, const Taps& taps, const std::vector<Panel>& panels,
                  float* packed);

// gradient (outs, ins, taps) = or += sums, whose row (tap, in) has `outs` columns. `temporary`
// holds 16 * tap_count * (outs + 1) floats.
void StoreWeightGradient(const Kernels& kernels, const float* sums, int64_t outs, int64_t ins,
                         int64_t tap_count, bool accumulate, float* temporary, float* gradient);

// target = source, or target += source.
void StoreGradient(const Kernels& kernels, const float* source, int64_t count, bool accumulate,
                   float* target);

}  // namespace runnel::fp32
