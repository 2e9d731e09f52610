#pragma once

// The inner loops of products of codes beside the products themselves (int8/int8_kernels.h), and of
// sums of small floats, one row an instruction set, compiled from one text (rows/loops_body.inc). All rows give the same bytes.
// Pure functions; any thread; pointers need no alignment beyond that of their type.

#include <cstdint>

#include "kernels/backends/cpu/grids/float_loops.h"
#include "kernels/ir/arithmetic/code_grid.h"
#include "kernels/ir/arithmetic/code_pairs.h"
#include "kernels/ir/arithmetic/float_grid.h"
#include "kernels/ir/arithmetic/symmetric_grid.h"
#include "proto/base/host/isa.h"

namespace runnel::cpu {

// A row of values from their sums (ValueOfSums).
struct ValueRow {
  const int32_t* sums = nullptr;
  const int32_t* upper = nullptr;  // of wide codes: sums are 256 * upper + sums; or null
  double left = 0;                 // the sum of the left codes
  const double* product_units = nullptr;
  const double* left_units = nullptr;
  const double* right_parts = nullptr;
  int64_t count = 0;
};

// Values of neighbouring channels of a depthwise product: each with its own sum of left codes.
struct ChannelRow {
  const int32_t* sums = nullptr;
  const int32_t* lefts = nullptr;
  // Of wide codes: sums are 256 * upper + sums, lefts likewise; or null.
  const int32_t* upper_sums = nullptr;
  const int32_t* upper_lefts = nullptr;
  const double* product_units = nullptr;
  const double* left_units = nullptr;
  const double* right_parts = nullptr;
  int64_t count = 0;
};

// The values of some columns of some pixels of a result, from the sums of a tile.
struct ValueTile {
  const int32_t* const* sums = nullptr;  // by row
  const int64_t* places = nullptr;       // by row: element of the result that the first one is
  int rows = 0;
  int64_t columns = 0;
  int64_t pixel = 1;                           // elements of the result from a pixel to the next
  int64_t positions = 1;                       // pixels of an image
  const int32_t* upper = nullptr;              // of wide codes, as the result lies; or null
  const double* left_sums = nullptr;           // by pixel of the result
  const double* product_units = nullptr;       // by column, from the tile's first one on
  const double* left_units = nullptr;          // likewise
  const double* const* right_parts = nullptr;  // by position: of all columns
  int64_t first_column = 0;                    // where the tile's begin in right_parts
};

// Neighbouring columns of a row of a product, the terms of one chunk of its sums.
struct ChunkColumns {
  const float* factors = nullptr;  // the row's, by term
  const float* values = nullptr;   // by term, the columns', `step` elements from term to term
  int64_t step = 0, terms = 0;
  int64_t columns = 0;  // a multiple of kChunkLanes
  FloatBounds bounds;
};
inline constexpr int64_t kChunkLanes = 16;

// Of a group on levels (kernels/ir/arithmetic/multi_level.h).
struct LevelBounds {
  int32_t least_exponent = 0, mantissa_bits = 0;
  float largest = 0;
  float scale = 0;  // of the tensor times the group's
};

struct GridLoops {
  Isa isa;
  // NaN is no part of it.
  ValueRange (*range)(const float* x, int64_t count);
  // Takes rows of channels into the least and largest value of each channel. NaN is no part of it.
  void (*extremes)(const float* x, int64_t rows, int64_t channels, float* low, float* high);
  // CodeOfAffine of each element, with no noise where draws (20 bits each) is null; whether there is
  // a NaN. low: of wide codes the lower parts, else null.
  bool (*codes)(const float* x, const uint32_t* draws, int64_t count, const AffineGrid& grid,
                int32_t centre, int8_t* codes, int8_t* low);
  // SymmetricCode of each quotient, or NoisySymmetricCode where there are draws; whether there is a NaN.
  bool (*symmetric_codes)(const float* x, const uint32_t* draws, int64_t count,
                          const SymmetricBounds& bounds, float unit, int8_t* codes);
  // PackPairs and UnpackPairs of a group of kPairedAtOnce.
  void (*pack)(const int8_t* codes, uint8_t* packed);
  void (*unpack)(const uint8_t* packed, int8_t* codes);
  int32_t (*sum)(const int8_t* codes, int64_t count);
  // sums[p] = the sum of `channels` codes from codes + p * step on.
  void (*pixel_sums)(const int8_t* codes, int64_t pixels, int64_t step, int64_t channels,
                     int64_t* sums);
  // sums += codes.
  void (*add)(const int8_t* codes, int64_t count, int32_t* sums);
  void (*values)(const ValueRow& row, float* y);
  void (*channel_values)(const ChannelRow& row, float* y);
  void (*tile_values)(const ValueTile& tile, float* result);
  // Puts a group on its levels as host::PutOnLevels does, with draws of 20 bits, or to the nearest
  // where those are null. y may be x.
  void (*levels)(const float* x, const uint32_t* draws, int64_t count, const LevelBounds& bounds,
                 float* y);
  // Adds the chunk's sums to the totals, as ChunkSum does.
  void (*add_chunk)(const ChunkColumns& chunk, float* totals);
  FloatLoops floats;
};

// The best row that this machine can run and that needs no more than `isa`.
const GridLoops& GridLoopsFor(Isa isa);

}  // namespace runnel::cpu
