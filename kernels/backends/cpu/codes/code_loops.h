#pragma once

// Element loops of INT8 inference: sums to codes, additions, samples to
// codes, Winograd's transforms. Compiled once an instruction set (code_loops_*.cc); all exact, so
// each row gives the same bytes. Pure functions, any thread.

#include <cstdint>

#include "absl/types/span.h"
#include "proto/base/host/isa.h"

namespace runnel::cpu {

// By output channel, how a sum becomes a code (kernels/ir/arithmetic/code_rule.h). Each sum with its offset, less its
// row's sum times the weight zero, must fit int32.
struct CodeColumns {
  const int32_t* offsets = nullptr;       // bias - z_x sum(w) + K z_x z_w
  const int32_t* multipliers = nullptr;   // 0..2^31 - 1
  const int32_t* shifts = nullptr;        // 1..62
  const int32_t* limits = nullptr;        // magnitudes from there on give the clamp's code; they
                                          // must give less than 2^31
  const int32_t* weight_zeros = nullptr;  // or null: all 0
  // multiplier * 2^-shift, where no sum times it reaches 2^30; or null. Lets a row round most sums
  // in floats and only those that are near a half in integers.
  const float* scales = nullptr;
  // Whether one float multiply-add by the scale gives each code: what Int8TileCoding asks for.
  // With scales and without weight_zeros.
  bool rounds_once = false;
  int32_t zero = 0;
  int32_t lowest = -127, highest = 127;
};

// Rows of sums of columns [first, first + count).
struct SumRows {
  const int32_t* const* sums = nullptr;
  const int32_t* row_sums = nullptr;  // of the inputs, by row; with weight_zeros
  int8_t* const* codes = nullptr;
  int rows = 0;
  int64_t first = 0, count = 0;
};

// An addition whose sums, with half a unit of the shift, fit int32; shift in 1..31.
struct CodeAddition {
  int32_t zero_a = 0, zero_b = 0;
  int32_t factor_a = 0, factor_b = 0;
  int32_t shift = 1;
  int32_t zero = 0;
  int32_t lowest = -127, highest = 127;
};

// Neighbouring outputs of a row of a depthwise 3x3 convolution. Channels come in blocks of
// NineTapsLoop::block, in a block as instructions leave them that work within lanes of 16 bytes:
// place (v, q, j), v < 4, q < block / 16, j < 4, is channel 16 q + 4 v + j; up to 16 channels are
// in order. So lie the columns (with what padding up to whole blocks needs) and the weights: of a
// block [column of the window][place][row of the window], and a zero in place of a fourth row.
struct NineTaps {
  const int8_t* const* x = nullptr;  // by tap, the first pixel's; zeros where it lies outside
  int64_t x_step = 0;                // elements from a pixel to the next
  // Whether that is a column of the window: pixel p of tap 3 r + k is at x[3 r] + (p + k) x_step.
  bool slides = false;
  const int8_t* weights = nullptr;
  int64_t pixels = 0, channels = 0;
  int8_t* codes = nullptr;  // [pixel][channel]
};

struct NineTapsLoop {
  // columns.scales is not null, weight_zeros is. Null: the row has none.
  void (*run)(const CodeColumns& columns, const NineTaps& row) = nullptr;
  int64_t block = 0;         // of channels
  int32_t bias = 0;          // added to each x: offsets are less bias times the sum of the weights
  bool rounds_once = false;  // only for columns that do
};

struct CodeLoops {
  const char* name;
  Isa isa = Isa::kPortable;
  void (*requantize)(const CodeColumns& columns, const SumRows& rows);
  void (*add)(const CodeAddition& addition, const int8_t* a, const int8_t* b, int64_t n, int8_t* y);
  // y = x * inverse, rounded half away from zero, + zero, within +-max_code. A product beyond 10^6
  // counts as that, NaN as the lowest.
  void (*encode)(const float* x, int64_t n, float inverse, int32_t zero, int32_t max_code,
                 int8_t* y);
  // y[o] += x[i] * w[i * outs + o] for each i in order: a product, then a sum.
  void (*add_products)(const float* x, int64_t ins, const float* w, int64_t outs, float* y);
  NineTapsLoop depthwise_nine = {};
  // WinogradInput (winograd.h).
  void (*winograd_input)(const int8_t* const* d, int64_t channels, int8_t* v, int64_t v_step);
  // WinogradOutput for each channel: pixel k of the tile to y[k].
  void (*winograd_output)(const int32_t* m, int64_t m_step, int64_t channels, int32_t* const* y);
};

// Rows that this machine can run, best first, portable last.
absl::Span<const CodeLoops* const> SupportedCodeLoops();
// The best row that this machine can run and that needs no more than `isa`.
const CodeLoops& CodeLoopsFor(Isa isa);

}  // namespace runnel::cpu
