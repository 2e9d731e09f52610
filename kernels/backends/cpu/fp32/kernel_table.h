#pragma once

// The inner loops of FP32 programs, one row per instruction set. Each row is the same templates
// (*_kernels.h) over another register type (vec_*.h); to add an instruction set: a register type,
// a file like kernels_avx2.cc and a row in kernel_table.cc.
//
// Activations lie channels-last: rows (pixels) of C floats. Rows of different instruction sets
// round differently (fused multiply-adds); one row gives the same bytes however the work is cut
// into calls, unless a comment says otherwise. Pure functions; any thread; pointers need no
// alignment beyond that of their type.

#include <cstdint>
#include <limits>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ir/arithmetic/fake_quantize.h"
#include "kernels/ir/arithmetic/transformer_math.h"
#include "kernels/ir/optimizers/optimizer_scalars.h"
#include "proto/base/host/isa.h"

namespace runnel::fp32 {

using transformer::LayerNormRows;

// Columns of a matrix product, cut into panels of at most Kernels::tile_vectors registers. Panel p
// of the packed B holds its columns' values row by row: K rows of `width` floats, those past
// `columns` are 0.
struct Panel {
  int64_t begin = 0;   // first column
  int columns = 0;     // columns that exist
  int vectors = 0;     // registers
  int64_t offset = 0;  // start of a K-row panel in the packed B, in units of K floats
};

// `length` values of A that lie side by side, at `offset` floats from a row's pointer.
struct Segment {
  int64_t offset = 0;
  int64_t length = 0;
  int64_t depth = 0;  // the row of B that its first value meets
};

// Rows of A and C whose segments are the same. A's row i is made of the segments at a[i], in
// ascending order of depth; rows of B that no segment meets are left out. C's row i is at c[i].
struct ProductRows {
  const float* const* a = nullptr;
  float* const* c = nullptr;
  int64_t rows = 0;
  const Segment* segments = nullptr;
  int64_t segment_count = 0;
};

// What becomes of finished sums, in registers: second(first(sum * factor + offset) + addend), where
// first and second are clamps. `sums` is where all sums of the product begin; `addend` and `target`
// are tensors of the same shape, either apart from one another and from the sums or the same memory.
struct Clamp {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
};
struct SumFinish {
  const float* factor = nullptr;  // by column; null: without factor and offset
  const float* offset = nullptr;
  Clamp first;
  const float* addend = nullptr;  // null: without addend and `second`
  Clamp second;
  const float* sums = nullptr;
  float* target = nullptr;
};

// C = A * B (+ bias).
struct Product {
  const ProductRows* groups = nullptr;
  int64_t group_count = 0;
  int64_t depth = 0;         // K, the rows of B
  const float* b = nullptr;  // packed
  const Panel* panels = nullptr;
  int64_t panel_count = 0;
  const float* bias = nullptr;  // by column, or null
  // Null: sums stay as they are in C. Else C may be anything afterwards but where it is the target.
  const SumFinish* finish = nullptr;
  int64_t finish_column = 0;  // that of finish's arrays which column 0 of B meets
};

// A tile's outputs of F(2x2, 3x3), y = A^T m A + bias: 2 x 2 pixels of `columns` channels.
struct WinogradTile {
  const float* m = nullptr;  // point p at m + p * m_step
  int64_t m_step = 0;
  int columns = 0;
  const float* bias = nullptr;        // by column, or null
  float* const* y = nullptr;          // of 4 pixels, row by row; null: there is none
  const SumFinish* finish = nullptr;  // as in Product
  int64_t finish_column = 0;
};

// Weight-gradient over pixels p: sums[i][j] (+)= sum over p of left[p][i] * right[p][j].
struct OuterProduct {
  const float* const* left = nullptr;   // one pointer a pixel
  const float* const* right = nullptr;  // one pointer a pixel
  int64_t pixels = 0;
  const Segment* segments = nullptr;  // segments of left: i runs through them
  int64_t segment_count = 0;
  // By pixel, or null: bit s is set where segment s lies in the padding, which is not read.
  const uint64_t* outside = nullptr;
  const Panel* panels = nullptr;  // panels of right: j runs through them
  int64_t panel_count = 0;
  bool accumulate = false;
  float* sums = nullptr;  // row i at sums + i * stride
  int64_t stride = 0;
};

// A batch normalisation made ready: y = act(x * factor + offset) by channel, where factor =
// scale / standard deviation and offset = shift - mean * factor. The gradients need the mean too.
enum class Activation : uint8_t { kNone, kRelu, kRelu6 };
struct Normalisation {
  const float* factor = nullptr;
  const float* offset = nullptr;
  const float* mean = nullptr;
  Activation activation = Activation::kNone;
};

// One row of outputs of a depthwise convolution, from `taps_h` rows of a padded input.
// Output column o, tap (i, j) reads column o * stride + j * gap of rows[i].
struct DepthwiseRow {
  const float* const* rows = nullptr;
  int64_t taps_h = 0, taps_w = 0;
  int64_t stride = 1, gap = 1;
  const float* weight = nullptr;  // (taps, C)
  const float* bias = nullptr;    // by channel, or null
  int64_t channels = 0;
  int64_t columns = 0;
  float* y = nullptr;  // column o at y + o * y_step floats
  int64_t y_step = 0;
  const SumFinish* finish = nullptr;  // as in Product; the sums' columns are the channels
};

// sums (taps, C) += products of output rows dy with the padded input: output row r, tap (i, j)
// meets input row r * stride_h + i * gap_h, and columns likewise.
struct DepthwiseOuter {
  const float* dy = nullptr;  // (rows, columns, C)
  const float* x = nullptr;   // padded, rows of x_row floats
  int64_t x_row = 0;
  int64_t rows = 0, columns = 0;
  int64_t taps_h = 0, taps_w = 0;
  int64_t stride_h = 1, stride_w = 1;
  int64_t gap_h = 1, gap_w = 1;
  int64_t channels = 0;
  int64_t channel_begin = 0, channel_end = 0;
  float* sums = nullptr;
};

// out[0..columns) = the sum over k < depth of a[k * a_stride] * b[k * b_stride + 0..columns).
struct RowProduct {
  const float* a = nullptr;
  int64_t a_stride = 1;
  int64_t depth = 0;
  const float* b = nullptr;
  int64_t b_stride = 0;
  int64_t columns = 0;
  float* out = nullptr;
};

#define RUNNEL_OPTIMIZER(...) +1
inline constexpr size_t kOptimizers = 0
#include "proto/base/training/optimizers.inc"
    ;
#undef RUNNEL_OPTIMIZER

struct Kernels {
  absl::string_view name;
  Isa isa;
  int width;         // floats in a register
  int tile_vectors;  // registers in a panel, at most

  void (*product)(const Product& p);
  void (*outer_product)(const OuterProduct& p);
  void (*depthwise_row)(const DepthwiseRow& d);
  // v = B^T d B of a tile of 4 x 4 pixels, row by row at d: point p to v + p * v_step.
  void (*winograd_input)(const float* const* d, int64_t channels, float* v, int64_t v_step);
  void (*winograd_output)(const WinogradTile& w);
  void (*depthwise_outer)(const DepthwiseOuter& d);

  // out (columns, rows) = in (rows, columns); row strides in floats.
  void (*transpose)(const float* in, int64_t rows, int64_t columns, int64_t in_stride, float* out,
                    int64_t out_stride);

  // Means of `rows` rows of channels, and sums of squared deviations from them.
  void (*moments)(const float* x, int64_t rows, int64_t channels, float* mean, float* squares);
  // Column sums.
  void (*sums)(const float* x, int64_t rows, int64_t channels, float* sums);
  // y = n(x); y may be x.
  void (*normalise)(const float* x, int64_t rows, int64_t channels, const Normalisation& n,
                    float* y);
  // Sums of g and of g * (x - mean), where g is dy, but 0 where the activation is flat.
  void (*normalise_sums)(const float* dy, const float* x, int64_t rows, int64_t channels,
                         const Normalisation& n, float* sums, float* products);
  // dx = g * n.factor + (x * a + b), g as above; dx may be dy or x.
  void (*normalise_gradient)(const float* dy, const float* x, int64_t rows, int64_t channels,
                             const Normalisation& n, const float* a, const float* b, float* dx);

  void (*row_product)(const RowProduct& p);
  // The largest of the scores times `scale`; sum: of what e^(scale * score - that) is.
  float (*score_maximum)(const float* scores, int64_t count, float scale, float* sum);
  // e^(scale * score - log_sum); shares may be scores.
  void (*shares)(const float* scores, int64_t count, float scale, float log_sum, float* shares);
  // scale * share * (dshare - mean); dscores may be dshares.
  void (*score_gradient)(const float* shares, const float* dshares, int64_t count, float scale,
                         float mean, float* dscores);
  // mean and inverse may be null.
  void (*layer_norm)(const LayerNormRows& n, float* y, float* mean, float* inverse);
  // Adds to dscale and dshift.
  void (*layer_norm_gradient)(const LayerNormRows& n, const float* dy, const float* mean,
                              const float* inverse, float* dx, float* dscale, float* dshift);

  // Elementwise; the output may be one of the inputs.
  void (*sigmoid)(const float* x, int64_t count, float* y);
  void (*gelu)(const float* x, int64_t count, float* y);
  void (*gelu_gradient)(const float* dy, const float* x, int64_t count, float* dx);
  void (*exact_gelu)(const float* x, int64_t count, float* y);
  void (*exact_gelu_gradient)(const float* dy, const float* x, int64_t count, float* dx);
  void (*relu)(const float* x, int64_t count, float* y);
  void (*relu6)(const float* x, int64_t count, float* y);
  void (*relu_gradient)(const float* dy, const float* y, int64_t count, float* dx);
  void (*relu6_gradient)(const float* dy, const float* y, int64_t count, float* dx);
  // Bits of a mask, those of the last byte's rest 0: 1 where the gradient passes y. Of both, elements
  // begin at a byte.
  void (*relu_mask)(const float* y, int64_t count, uint8_t* mask);
  void (*relu6_mask)(const float* y, int64_t count, uint8_t* mask);
  void (*masked_gradient)(const float* dy, const uint8_t* mask, int64_t count, float* dx);
  void (*add)(const float* a, const float* b, int64_t count, float* y);
  void (*scale)(const float* x, int64_t count, float factor, float* y);
  OptimizerUpdate updates[kOptimizers];  // in the order of Optimizers()
  // Takes over larger values and, above all, the first NaN.
  void (*take_maximum)(const float* x, int64_t channels, int32_t position, float* best,
                       int32_t* where);
  // mask[i] = factor where bits >= threshold, else 0; the bits are those of CounterRandom's
  // elements 4 * block + i under key and sequence, shifted right by 8. count is a multiple of 64.
  void (*dropout_mask)(const uint32_t key[2], const uint32_t sequence[2], uint64_t block,
                       int64_t count, uint32_t threshold, float factor, float* mask);
  // y[i] = x[i] * mask[i], but 0 where mask[i] is; y may be x.
  void (*apply_mask)(const float* x, const float* mask, int64_t count, float* y);

  // Fake quantisation (kernels/ir/arithmetic/fake_quantize.h). The same bytes on every instruction set.
  // The largest bits of |x|: NaN above infinity above all finite values.
  uint32_t (*max_magnitude)(const float* x, int64_t count);
  // Sum of |x| in double, in eight parts.
  double (*magnitude_sum)(const float* x, int64_t count);
  // v = 2 * c / steps - 1, c = nearest integer of steps * (tanh(w) * half_inverse + 1/2).
  void (*tanh_grid)(const float* w, int64_t count, float half_inverse, int steps, float* v);
  // Sum of dv * tanh(w).
  double (*tanh_product_sum)(const float* dv, const float* w, int64_t count);
  // dw = dv * inverse * (1 - tanh(w)^2); adds that to dw if `add`.
  void (*tanh_gradient)(const float* dv, const float* w, int64_t count, float inverse, bool add,
                        float* dw);
  // y = c / steps, c = nearest integer of steps * x clipped to 0..steps; y may be x.
  void (*unit_grid)(const float* x, int64_t count, int steps, float* y);
  // dx = dy, but 0 where x < 0 or x > 1; dx may be dy or x.
  void (*unit_gradient)(const float* dy, const float* x, int64_t count, float* dx);
  // The 20 upper bits of CounterRandom's words of elements 4 * block + i; count is a multiple
  // of 64.
  void (*draw_words)(const uint32_t key[2], const uint32_t sequence[2], uint64_t block,
                     int64_t count, uint32_t* draws);
  // ErrorOfCode(ErrorCode(dy, grid, draw), grid) of each element; y may be dy.
  void (*error_grid)(const float* dy, const uint32_t* draws, int64_t count, const ErrorGrid& grid,
                     float* y);
};

// Rows that this machine can run, best first, portable last.
absl::Span<const Kernels* const> SupportedKernels();

extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#elif defined(__aarch64__)
extern const Kernels kNeonKernels;
#endif

}  // namespace runnel::fp32
