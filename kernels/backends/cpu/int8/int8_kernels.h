#pragma once

// The inner loops of INT8 training, one row per instruction set. All sums are exact, so every row
// gives the same bytes; the portable row is the specification. To add an instruction set: one file
// with a `const Int8Kernels k...Int8Kernels`, one row in int8_kernels.cc.
//
// Every product of matrices is computed in tiles: up to tile_rows rows of A times a panel of up to
// panel_columns columns of B. The reduction goes in steps of k_group consecutive values:
//   A  k_group bytes of each row a step, at row pointer + step * a_step. Stored plus a_bias (as
//      unsigned bytes, so 128 for instructions that multiply unsigned by signed bytes, else 0).
//   B  packed: [step][column][k_group], `width` columns, zeros behind the last column and the last
//      k. width is the number of columns rounded up to a multiple of column_unit.
// The rows of A are pixels of the activations as they lie in memory (forward, input-gradient), or
// packed rows [panel of tile_rows rows][step][row][k_group] (weight-gradient).
//
// Pure functions; any thread. Pointers need the alignment of their type only; what is packed here
// starts at multiples of 64 bytes. Mantissas are in -127..127, but for takes_lowest.

#include <cstdint>

#include "proto/base/host/isa.h"

namespace runnel::cpu {

inline constexpr int kMaxTileRows = 16;
inline constexpr int kMaxPanelColumns = 64;
inline constexpr int kMaxLanes = 16;

// A run of `steps` steps that is contiguous in A and in B.
struct Int8Segment {
  int64_t a_offset = 0;  // bytes from each row pointer
  int64_t b_offset = 0;  // bytes from the panel
  int64_t steps = 0;
};

// Rounding of a tile's sums to int8 (rescale_pseudo_stochastic, rescale_half_away) before they
// leave the registers.
struct Int8TileRounding {
  int shift = 0;
  bool half_away = false;
  bool relu = false;
};

// How a tile turns its sums into codes before they leave the registers:
//   code = clamp(scale * sum to the nearest integer + zero)
// in floats, with one rounding. The caller sees to it that this is exact: no scale * sum lies
// halfway between two integers, none reaches 2^15 - 256 in magnitude, and a sum of over 24 bits
// gives a code beyond the clamp.
struct Int8TileCoding {
  const float* scales = nullptr;  // by column of the panel, `width` of them
  int32_t zero = 0;               // within +-127, as all zeros and limits here
  int32_t lowest = -127, highest = 127;
  // Then, where it adds another value:
  //   code = clamp(((code * factor + other * other_factor + start) >> shift) + zero)
  // the shift rounded to the nearest, halves away from zero; what is shifted, with half a unit of
  // the shift, fits int32.
  bool adds = false;
  int16_t factor = 0, other_factor = 0;  // not negative
  int32_t start = 0;
  int shift = 1;  // 1..30
  int32_t sum_zero = 0, sum_lowest = -127, sum_highest = 127;
};

// c[r][j] = (addend ? addend[r][j] : 0) + start[j] + sum over the segments of a[r] * b[j], modulo
// 2^32, for r < rows and j < columns. Nothing beyond is written.
struct Int8Tile {
  const uint8_t* const* a = nullptr;  // one pointer a row
  // Bytes from a step to the next: k_group where rows are pixels, or tile_rows * k_group where A is
  // packed, then a[r] = a[0] + r * k_group.
  int64_t a_step = 0;
  bool a_is_raw = false;  // A lies without a_bias; only with adds_bias, and not where A is packed
  const int8_t* b = nullptr;
  // What is read soon: a full tile may fetch 64 bytes a step of it into the second-level cache, so
  // four tiles fetch a panel. Or null.
  const int8_t* ahead = nullptr;
  const Int8Segment* segments = nullptr;
  int segment_count = 0;                   // 0 is a sum over nothing
  const int32_t* start = nullptr;          // `width` values, or null for zeros
  int32_t* const* c = nullptr;             // one pointer a row
  const int32_t* const* addend = nullptr;  // one pointer a row, may be c; or null
  int rows = 0;                            // 1..tile_rows
  int columns = 0;                         // 1..panel_columns
  // Raised to |c| of the written values, any element in any of the kMaxLanes; or null.
  uint32_t* max_lanes = nullptr;
  // With rounds_tiles, or null. Then y[r][j] is written in place of c[r][j], 0 where mask[r][j] is
  // <= 0, max_lanes is not null, and *saturated grows by the number of |sum| > 2^(7 + shift).
  const Int8TileRounding* rounding = nullptr;
  int8_t* const* y = nullptr;
  const int8_t* const* mask = nullptr;  // or null
  int64_t* saturated = nullptr;
  // With codes_tiles, or null. Then codes go to y[r][j] in place of sums to c[r][j].
  const Int8TileCoding* coding = nullptr;
  const int8_t* const* other = nullptr;  // one pointer a row, where the coding adds
};

struct Int8Kernels {
  const char* name = "";
  Isa isa = Isa::kPortable;
  int tile_rows = 0;      // at most kMaxTileRows
  int panel_columns = 0;  // at most kMaxPanelColumns
  int column_unit = 0;    // divides panel_columns
  int k_group = 0;
  uint8_t a_bias = 0;         // 0 or 128
  bool adds_bias = false;     // tile takes A without its bias (Int8Tile::a_is_raw)
  bool rounds_tiles = false;  // tile takes Int8Tile::rounding
  bool codes_tiles = false;   // tile takes Int8Tile::coding
  bool takes_lowest = false;  // mantissas of all products may be -128
  // Steps of a full panel that stay in the caches beside what else a tile reads. Longer reductions
  // go in blocks.
  int64_t panel_steps = 0;

  void (*tile)(const Int8Tile& tile);

  // dst[r][i] = src[r][i] + a_bias for i < bytes, a_bias for bytes <= i < dst_stride.
  void (*copy_a)(const int8_t* src, int64_t src_stride, int64_t rows, int64_t bytes, uint8_t* dst,
                 int64_t dst_stride);
  // Packs A for the weight-gradient: k rows of n bytes at src + i * src_stride; byte r of each is a
  // row of A. Row panel t goes to dst + t * panel_stride, ceil(k / k_group) steps. Missing k and
  // rows become a_bias (zero).
  void (*pack_a)(const int8_t* src, int64_t src_stride, int64_t k, int64_t n, uint8_t* dst,
                 int64_t panel_stride);
  // Packs B of n columns: column j is k contiguous bytes at src + j * column_stride.
  void (*pack_b_columns)(const int8_t* src, int64_t column_stride, int64_t k, int n, int width,
                         int8_t* panel);
  // Packs B of n columns: row i of k has n contiguous bytes at src + i * row_stride.
  void (*pack_b_rows)(const int8_t* src, int64_t row_stride, int64_t k, int n, int width,
                      int8_t* panel);
  // start[j] -= a_bias * sum of column j over the segments, for j < width: what takes the bias out
  // of a tile. Null where a_bias is 0.
  void (*column_start)(const int8_t* panel, const Int8Segment* segments, int segment_count,
                       int width, int32_t* start);

  // out[i] = saturate(round(acc[i], shift)), -127..127; then max(0, .) with relu; then 0 where mask
  // (if not null) is <= 0. shift 0 saturates only; shift <= 31. Rounding: program.h.
  // `out` may be `mask`.
  void (*rescale_pseudo_stochastic)(const int32_t* acc, int64_t n, int shift, bool relu,
                                    const int8_t* mask, int8_t* out);
  void (*rescale_half_away)(const int32_t* acc, int64_t n, int shift, bool relu, const int8_t* mask,
                            int8_t* out);
  // The largest |acc[i]|, 0 for n = 0.
  uint32_t (*max_abs)(const int32_t* acc, int64_t n);
  // out[i] = saturate(w[i] - g[i]); out may be w.
  void (*subtract_saturating)(const int8_t* w, const int8_t* g, int64_t n, int8_t* out);

  // acc[p][c] = sum over t < taps of x[t][p][c] * w[t][c], for p < pixels and c < channels: a row
  // of a depthwise convolution. Pixel p of tap t is at x[t] + p * x_step, of acc at acc + p *
  // acc_step (elements). w is [tap][channels], int8. max_lanes as in Int8Tile, or null.
  void (*depthwise_row)(const int8_t* const* x, int64_t x_step, const int8_t* const* w, int taps,
                        int64_t pixels, int64_t channels, int32_t* acc, int64_t acc_step,
                        uint32_t* max_lanes);
  // dw[c] += sum over p < pixels of dy[p][c] * x[p][c], pixels at steps of dy_step and x_step
  // bytes.
  void (*depthwise_weight_row)(const int8_t* dy, int64_t dy_step, const int8_t* x, int64_t x_step,
                               int64_t pixels, int64_t channels, int32_t* dw);
};

extern const Int8Kernels kPortableInt8Kernels;
#if defined(__x86_64__)
extern const Int8Kernels kAvx2Int8Kernels;
extern const Int8Kernels kAvxVnniInt8Kernels;
extern const Int8Kernels kAvx512Int8Kernels;
extern const Int8Kernels kAvx512VnniInt8Kernels;
extern const Int8Kernels kAvx512VnniRawInt8Kernels;  // adds_bias, else the same
extern const Int8Kernels kAvx2LowestInt8Kernels;     // takes_lowest, slower
extern const Int8Kernels kAvx512LowestInt8Kernels;   // likewise
#endif
#if defined(__aarch64__)
extern const Int8Kernels kNeonInt8Kernels;               // any arm64
extern const Int8Kernels kNeonLowestInt8Kernels;         // takes_lowest, slower
extern const Int8Kernels kNeonDotprodLowestInt8Kernels;  // likewise where depthwise
extern const Int8Kernels kNeonI8mmLowestInt8Kernels;     // likewise
extern const Int8Kernels kNeonDotprodInt8Kernels;        // SDOT
extern const Int8Kernels kNeonI8mmInt8Kernels;           // SMMLA
#endif

}  // namespace runnel::cpu
