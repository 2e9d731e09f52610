#pragma once

// INT8 x INT8 -> INT32 convolutions and matrix products for integer training. Exact: the same bytes
// for any instruction set and thread count.
//
// Mantissas are in -127..127. Reductions must be short enough for int32: at most
// kMaxInt32Products products (the wide weight-gradient has no such limit). Shapes are trusted:
// positive sizes, outputs as conv_shape.h says, groups divides in_c and out_c. Nothing is
// allocated; inputs, outputs and workspace must not overlap. Up to 64 bytes behind an input may be
// read, whatever they hold: they must be there. One caller a context.

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backends/cpu/int8/int8_kernels.h"
#include "kernels/backends/cpu/thread_pool.h"
#include "kernels/ir/conv_shape.h"

namespace runnel::cpu {

// Rows that this machine can run, best first, portable last.
absl::Span<const Int8Kernels* const> SupportedInt8Kernels();
const Int8Kernels& BestInt8Kernels();

struct Int8Context {
  const Int8Kernels* kernels = nullptr;
  ThreadPool* pool = nullptr;
  // As many bytes as the call's ...WorkspaceBytes says, 64-byte aligned.
  std::byte* workspace = nullptr;
};

enum class ConvPass {
  kForward,
  kInputGradient,
  kWeightGradient,
  kWideWeightGradient,
  kRoundedWeightGradient,
};

// For this row and this many threads; 64 at least.
int64_t Int8WorkspaceBytes(const Int8Kernels& kernels, const ConvShape& shape, ConvPass pass,
                           int threads);

// x int8[N][IH][IW][IC], w int8[OC][KH][KW][IC / groups] -> acc int32[N][OH][OW][OC], overwritten;
// *max_abs = max|acc| (max_abs may be null).
void Int8ConvForward(const Int8Context& context, const ConvShape& shape, const int8_t* x,
                     const int8_t* w, int32_t* acc, int32_t* max_abs);

// dy int8[N][OH][OW][OC], w -> acc int32[N][IH][IW][IC], overwritten.
void Int8ConvInputGradient(const Int8Context& context, const ConvShape& shape, const int8_t* dy,
                           const int8_t* w, int32_t* acc, int32_t* max_abs);

// Sums that are rescaled as they leave the product: rounded by `shift` bits as kRescale does, and
// nowhere in memory.
struct Int8Rescale {
  Int8TileRounding rounding;
  const int8_t* mask = nullptr;  // lies as the result does; or null
};
struct Int8SumsSeen {
  int32_t max_abs = 0;
  int64_t saturated = 0;  // number of |sum| > 2^(7 + shift)
};
// The two passes above with int8 results. Not depthwise.
Int8SumsSeen Int8ConvForwardRescaled(const Int8Context& context, const ConvShape& shape,
                                     const int8_t* x, const int8_t* w, const Int8Rescale& rescale,
                                     int8_t* y);
Int8SumsSeen Int8ConvInputGradientRescaled(const Int8Context& context, const ConvShape& shape,
                                           const int8_t* dy, const int8_t* w,
                                           const Int8Rescale& rescale, int8_t* dx);

// The number of products in each element of the weight-gradient: batch * out_h * out_w.
inline int64_t Int8WeightGradientReduction(const ConvShape& shape) {
  return shape.batch * shape.out_h * shape.out_w;
}
// dy, x -> dw int32[OC][KH][KW][IC / groups], overwritten; or added to what is there, of which and
// the batch together int32 must hold the sums.
void Int8ConvWeightGradient(const Int8Context& context, const ConvShape& shape, const int8_t* dy,
                            const int8_t* x, int32_t* dw, int32_t* max_abs, bool adds = false);
// The same for reductions of any length; workspace of kWideWeightGradient.
void Int8ConvWeightGradientWide(const Int8Context& context, const ConvShape& shape,
                                const int8_t* dy, const int8_t* x, int64_t* dw, int64_t* max_abs,
                                bool adds = false);

// dy, x -> int8, rounded by `shift` bits as kNitiUpdate does, not depthwise: sums are in memory
// only between the chunks of a long reduction. Gives max|sum|. Workspace of kRoundedWeightGradient.
int32_t Int8ConvWeightGradientRounded(const Int8Context& context, const ConvShape& shape,
                                      const int8_t* dy, const int8_t* x,
                                      const Int8TileRounding& rounding, int8_t* rounded);

// A linear layer, c int32[m][n] = a int8[m][k] * transposed b int8[n][k], as a 1x1 convolution; all
// three passes.
ConvShape LinearShape(int64_t m, int64_t n, int64_t k);

}  // namespace runnel::cpu
