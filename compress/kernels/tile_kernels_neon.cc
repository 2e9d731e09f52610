// The tile loops for NEON: what the vectoriser does not find, and the loops that all instruction
// sets have for the rest. A rotated tile is decoded in 16-bit integers, where the Hadamard matrix
// times the codes is exact, as it is in FP32.

#if defined(__aarch64__)

#include <arm_neon.h>

#define RUNNEL_TILE
#define RUNNEL_TILE_OWN_LOOPS

#include "compress/kernels/tile_loops.inc"

namespace runnel {
namespace {

constexpr uint8_t kBitOfByte[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};

// Codes of 256 elements as bytes to planes.
inline void PackBytes(const uint8_t* codes, int bits, std::byte* planes) {
  const uint8x16_t weights = vld1q_u8(kBitOfByte);
  for (int bit = bits - 1; bit >= 0; --bit) {
    const uint8x16_t mask = vdupq_n_u8(static_cast<uint8_t>(1u << bit));
    for (size_t base = 0; base < kTileElements; base += 64, planes += 8) {
      uint8x16_t part[4];
      for (size_t i = 0; i < 4; ++i) {
        part[i] = vandq_u8(vtstq_u8(vld1q_u8(codes + base + 16 * i), mask), weights);
      }
      const uint8x16_t four = vpaddq_u8(vpaddq_u8(part[0], part[1]), vpaddq_u8(part[2], part[3]));
      vst1_u8(reinterpret_cast<uint8_t*>(planes), vget_low_u8(vpaddq_u8(four, four)));
    }
  }
}

// The inverse, as 16-bit integers.
inline void UnpackWords(const std::byte* planes, int bits, int16_t* words) {
  const uint8x16_t weights = vld1q_u8(kBitOfByte);
  constexpr uint8_t kEight[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const uint8x16_t spread = vld1q_u8(kEight);
  for (size_t base = 0; base < kTileElements; base += 16, words += 16) {
    uint8x16_t code = vdupq_n_u8(0);
    const auto* plane = reinterpret_cast<const uint8_t*>(planes) + base / 8;
    for (int bit = bits - 1; bit >= 0; --bit, plane += kTileElements / 8) {
      uint16_t both;
      std::memcpy(&both, plane, sizeof(both));
      const uint8x16_t bytes = vreinterpretq_u8_u16(vdupq_n_u16(both));
      const uint8x16_t set = vtstq_u8(vqtbl1q_u8(bytes, spread), weights);
      code = vorrq_u8(code, vandq_u8(set, vdupq_n_u8(static_cast<uint8_t>(1u << bit))));
    }
    vst1q_s16(words, vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(code))));
    vst1q_s16(words + 8, vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(code))));
  }
}

// Neighbours at distance 1, 2 and 4 within each of two vectors.
inline void RotateWithin(int16x8_t* a, int16x8_t* b) {
  int16x8_t x = vtrn1q_s16(*a, *b), y = vtrn2q_s16(*a, *b);
  int16x8_t sum = vaddq_s16(x, y), difference = vsubq_s16(x, y);
  const int32x4_t a4 = vreinterpretq_s32_s16(vtrn1q_s16(sum, difference));
  const int32x4_t b4 = vreinterpretq_s32_s16(vtrn2q_s16(sum, difference));
  x = vreinterpretq_s16_s32(vtrn1q_s32(a4, b4));
  y = vreinterpretq_s16_s32(vtrn2q_s32(a4, b4));
  const int32x4_t s4 = vreinterpretq_s32_s16(vaddq_s16(x, y));
  const int32x4_t d4 = vreinterpretq_s32_s16(vsubq_s16(x, y));
  const int64x2_t a2 = vreinterpretq_s64_s32(vtrn1q_s32(s4, d4));
  const int64x2_t b2 = vreinterpretq_s64_s32(vtrn2q_s32(s4, d4));
  x = vreinterpretq_s16_s64(vtrn1q_s64(a2, b2));
  y = vreinterpretq_s16_s64(vtrn2q_s64(a2, b2));
  sum = vaddq_s16(x, y);
  difference = vsubq_s16(x, y);
  *a = vreinterpretq_s16_s64(
      vtrn1q_s64(vreinterpretq_s64_s16(sum), vreinterpretq_s64_s16(difference)));
  *b = vreinterpretq_s16_s64(
      vtrn2q_s64(vreinterpretq_s64_s16(sum), vreinterpretq_s64_s16(difference)));
}

// The Hadamard matrix times the codes less top / 2. Sums are right modulo 2^16, and the results are
// within 16 bits: at most 256 * 255 / 2.
inline void RotateWords(int top, int16_t* words) {
  for (size_t i = 0; i < kTileElements; i += 16) {
    int16x8_t a = vld1q_s16(words + i), b = vld1q_s16(words + i + 8);
    RotateWithin(&a, &b);
    vst1q_s16(words + i, a);
    vst1q_s16(words + i + 8, b);
  }
  for (size_t distance = 8; distance < kTileElements; distance *= 2) {
    for (size_t i = 0; i < kTileElements; i += 2 * distance) {
      for (size_t j = i; j < i + distance; j += 8) {
        const int16x8_t a = vld1q_s16(words + j), b = vld1q_s16(words + j + distance);
        vst1q_s16(words + j, vaddq_s16(a, b));
        vst1q_s16(words + j + distance, vsubq_s16(a, b));
      }
    }
  }
  const int first = static_cast<uint16_t>(words[0]) - static_cast<int>(kTileElements / 2) * top;
  words[0] = static_cast<int16_t>(first);
}

inline void EncodeWhole(const float* x, size_t tile, const TileCoding& coding,
                        const CounterRandom* random, std::byte* out) {
  Tile t;
  Codes codes, halves;
  const float centre =
      ToBfloat16(coding.rotate ? Mean(x, kTileElements) : Middle(x, kTileElements));
  for (size_t i = 0; i < kTileElements; ++i) t.y[i] = x[i] - centre;
  if (coding.rotate) {
    FlipSigns(coding, tile, kTileElements, &t);
    Rotate(kTileElements, true, &t);
  }
  const float step = StepOf(t, kTileElements, coding, random != nullptr);
  StoreBfloat16(centre, out);
  StoreBfloat16(step, out + 2);
  if (step == 0.0f) {
    std::memset(out + kTileHeaderBytes, 0, kTileElements / 8 * coding.bits);
    return;
  }
  if (random != nullptr) {
    DrawHalves(*random, tile, kTileElements, halves.values);
  } else {
    for (uint32_t& half : halves.values) half = 0x8000u;
  }
  const auto top = static_cast<float>((1 << coding.bits) - 1);
  Quantize(t, kTileElements, step, top, halves.values, codes.values);
  uint8_t bytes[kTileElements];
  for (size_t i = 0; i < kTileElements; ++i) bytes[i] = static_cast<uint8_t>(codes.values[i]);
  PackBytes(bytes, coding.bits, out + kTileHeaderBytes);
}

inline void DecodeWhole(const std::byte* in, size_t tile, const TileCoding& coding, float* out) {
  Tile t;
  int16_t words[kTileElements];
  const float centre = LoadBfloat16(in);
  const int top = (1 << coding.bits) - 1;
  UnpackWords(in + kTileHeaderBytes, coding.bits, words);
  if (coding.rotate) {
    RotateWords(top, words);
    const float step = LoadBfloat16(in + 2) * 0x1p-4f;
    for (size_t i = 0; i < kTileElements; ++i) t.y[i] = static_cast<float>(words[i]) * step;
    FlipSigns(coding, tile, kTileElements, &t);
  } else {
    const float step = LoadBfloat16(in + 2);
    const float middle = static_cast<float>(top) * 0.5f;
    for (size_t i = 0; i < kTileElements; ++i) {
      t.y[i] = (static_cast<float>(words[i]) - middle) * step;
    }
  }
  for (size_t i = 0; i < kTileElements; ++i) out[i] = t.y[i] + centre;
}

bool EncodeTiles(const float* x, size_t n, const TileCoding& coding, const CounterRandom* random,
                 std::byte* tiles) {
  size_t tile = 0;
  for (; n >= kTileElements; n -= kTileElements, x += kTileElements, ++tile) {
    if (!Encodable(x, kTileElements)) return false;
    EncodeWhole(x, tile, coding, random, tiles);
    tiles += TileBytes(kTileElements, coding.bits);
  }
  if (n == 0) return true;
  if (!Encodable(x, n)) return false;
  EncodeTile(x, n, tile, TileWidth(n), coding, random, tiles);
  return true;
}

void DecodeTiles(const std::byte* tiles, size_t n, const TileCoding& coding, float* out) {
  size_t tile = 0;
  for (; n >= kTileElements; n -= kTileElements, out += kTileElements, ++tile) {
    if (LoadBfloat16(tiles + 2) == 0.0f) {  // zeros have signs: not for integers
      DecodeTile(tiles, kTileElements, tile, kTileElements, coding, out);
    } else {
      DecodeWhole(tiles, tile, coding, out);
    }
    tiles += TileBytes(kTileElements, coding.bits);
  }
  if (n > 0) DecodeTile(tiles, n, tile, TileWidth(n), coding, out);
}

}  // namespace

const TileKernels kNeonTileKernels = {EncodeTiles, DecodeTiles};

}  // namespace runnel

#endif  // defined(__aarch64__)
