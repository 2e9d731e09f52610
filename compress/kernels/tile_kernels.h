#pragma once

// The inner loops of the tile codecs (tile.h). One text, tile_loops.inc, is compiled for each
// instruction set; it uses nothing that could round differently from one to another, so every row
// gives the same bytes.
//
// A tensor is cut into tiles of 256 elements in memory order; the last one has the next power of
// two, at least 8, and is padded with its centre. A tile on the link: centre and step as bfloat16
// (a value's upper 16 bits), little-endian, then `bits` bit planes of width / 8 bytes, the most
// significant first, element i in bit i % 32 of the little-endian word i / 32.
//
// Pure functions; any thread; pointers need no alignment beyond that of their type.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "proto/base/random.h"

namespace runnel {

inline constexpr size_t kTileElements = 256;
inline constexpr size_t kTileHeaderBytes = 4;
// Larger magnitudes are the caller's business: sums of squares stay finite up to here.
inline constexpr float kMaxTileMagnitude = 0x1p100f;
// A step below this is sent as 0: all of the tile is its centre.
inline constexpr float kMinTileStep = 0x1p-100f;

// Coefficients of a tile that begins with `left` elements to go.
constexpr size_t TileWidth(size_t left) {
  return left >= kTileElements ? kTileElements : std::max<size_t>(8, std::bit_ceil(left));
}

constexpr size_t TileBytes(size_t width, int bits) { return kTileHeaderBytes + width / 8 * bits; }

struct TileCoding {
  int bits = 4;  // 2..8
  // The tile is multiplied with random signs and a Hadamard matrix, so that its values come near to
  // normal and an outlier spreads over all of them.
  bool rotate = false;
  std::array<uint32_t, 2> sign_key = {};  // key of Philox4x32-7 over {tile, word / 4, 0, 0}
};

// Encodes n elements. False: some |x| is no number or above kMaxTileMagnitude; the tiles are then
// unspecified. random: for stochastic rounding, element i of tile
// t draws half (i / 32) % 2 of word i / 64 of block 32 t + i % 32; null rounds to the nearest
// level.
using TileEncodeFn = bool (*)(const float* x, size_t n, const TileCoding& coding,
                              const CounterRandom* random, std::byte* tiles);
// Headers have been checked (CheckTiles of tile.h).
using TileDecodeFn = void (*)(const std::byte* tiles, size_t n, const TileCoding& coding,
                              float* out);

struct TileKernels {
  TileEncodeFn encode;
  TileDecodeFn decode;
};

extern const TileKernels kScalarTileKernels;
#if defined(__x86_64__)
extern const TileKernels kAvx2TileKernels;
extern const TileKernels kAvx512TileKernels;
#elif defined(__aarch64__)
extern const TileKernels kNeonTileKernels;
#endif

}  // namespace runnel
