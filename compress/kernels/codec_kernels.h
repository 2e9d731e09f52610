#pragma once

// The inner loops of the codecs, one row per instruction set. The scalar row is the specification;
// every other row gives the same bytes and the same doubles on any input, which
// tests/compress/codec_kernels_test.cc demands. To add an instruction set: one file with a
// `const CodecKernels k...Kernels` and one row in codec_kernels.cc.
//
// How rows can agree: a sum over elements is kept in 16 double lanes, element e in lane e % 16,
// added in ascending e; the lanes are merged in one fixed tree (MergeLanes). Nothing is contracted
// to a fused multiply-add. The floating-point environment is the default one (round to nearest,
// denormals kept).
//
// Pure functions; any thread; pointers need no alignment beyond that of their type.

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compress/kernels/int8_kernels.h"
#include "compress/kernels/tile_kernels.h"
#include "proto/base/host/isa.h"
#include "proto/base/random.h"

namespace runnel {

inline constexpr int kMaxMbqBits = 8;
inline constexpr int kSumLanes = 16;

using SumLanes = std::array<double, kSumLanes>;

// Lane j + lane j + 8, then + 4, + 2, + 1.
double MergeLanes(const SumLanes& lanes);

// Tables by which mbq_encode finds an element's code.
struct MbqSearch {
  int k = 0;
  // Code equals sorted rank: then the outcomes of the search are the bit planes.
  bool natural = false;
  // Thresholds as a search tree: node 2^l + i holds the one that decides bit l of the rank after
  // the prefix i. Each is the largest float that is not above the double midpoint, for which
  // x > threshold has the same answer.
  alignas(64) std::array<float, 256> tree = {};
  // Code of each sorted rank.
  alignas(64) std::array<int32_t, 256> code_of_rank = {};
};

// Sums that one pass over x gathers for the least squares and the mean error.
struct MbqSums {
  SumLanes x = {};                                // all elements
  std::array<SumLanes, kMaxMbqBits> ones_x = {};  // elements whose bit i is 1
  std::array<int64_t, kMaxMbqBits> ones = {};     // popcount(b_i)
  // popcount(b_i xor b_j), i < j.
  std::array<std::array<int64_t, kMaxMbqBits>, kMaxMbqBits> differ = {};
};

// Fp32 value of each code.
struct MbqLevels {
  int k = 0;
  alignas(64) std::array<float, 256> value = {};
};

struct CodecKernels {
  absl::string_view name;
  Isa isa = Isa::kPortable;

  // The largest |x[e]| as its bit pattern; >= 0x7F800000 iff some element is NaN or infinite.
  uint32_t (*max_abs_bits)(const float* x, size_t n);

  // Encodes n elements into k planes, plane i at planes + i * PlaneBytes(n), and fills *sums. A NaN
  // or infinite element makes MergeLanes(sums->x) NaN or infinite, finite ones never do.
  void (*mbq_encode)(const float* x, size_t n, const MbqSearch& search, std::byte* planes,
                     MbqSums* sums);

  // out[e] = levels.value[code of e].
  void (*mbq_decode)(const std::byte* planes, size_t n, const MbqLevels& levels, float* out);

  // Bit e % 8 of byte e / 8 of `below` (`above`) says whether x[e] < low (x[e] > high);
  // PlaneBytes(n) bytes each, unused bits 0. Returns how many elements are outside. low <= high.
  int64_t (*mark_outside)(const float* x, size_t n, float low, float high, std::byte* below,
                          std::byte* above);

  // StochasticQuantize of every element with random.Uniform(e), as int8 (n bytes) or as nibbles
  // q + 8 (NibbleBytes(n) bytes). scale is max|g| / limit rounded to FP32, above 0.
  void (*stochastic_encode8)(const float* g, size_t n, float scale, const CounterRandom& random,
                             std::byte* out);
  void (*stochastic_encode4)(const float* g, size_t n, float scale, const CounterRandom& random,
                             std::byte* out);

  // out[e] = q * scale, rounded once to FP32.
  void (*stochastic_decode8)(const std::byte* q, size_t n, float scale, float* out);
  void (*stochastic_decode4)(const std::byte* q, size_t n, float scale, float* out);

  // Loops of the tile codecs, and of int8.
  const TileKernels* tile;
  const Int8Kernels* int8;
};

// Rows that this machine can run, best first, scalar last.
absl::Span<const CodecKernels* const> SupportedCodecKernels();
// The first of them.
const CodecKernels& BestCodecKernels();

extern const CodecKernels kScalarCodecKernels;
#if defined(__x86_64__)
extern const CodecKernels kAvx2CodecKernels;
extern const CodecKernels kAvx512CodecKernels;
#elif defined(__aarch64__)
extern const CodecKernels kNeonCodecKernels;
#endif

// The scalar loops from element `begin` on, a multiple of 64: the vector rows end with these.
void ScalarMbqEncodeFrom(size_t begin, const float* x, size_t n, const MbqSearch& search,
                         std::byte* planes, MbqSums* sums);
void ScalarMbqDecodeFrom(size_t begin, const std::byte* planes, size_t n, const MbqLevels& levels,
                         float* out);
void ScalarStochasticEncode8From(size_t begin, const float* g, size_t n, float scale,
                                 const CounterRandom& random, std::byte* out);
void ScalarStochasticEncode4From(size_t begin, const float* g, size_t n, float scale,
                                 const CounterRandom& random, std::byte* out);
void ScalarStochasticDecode8From(size_t begin, const std::byte* q, size_t n, float scale,
                                 float* out);
void ScalarStochasticDecode4From(size_t begin, const std::byte* q, size_t n, float scale,
                                 float* out);
// Returns the number of those from `begin` on.
int64_t ScalarMarkOutsideFrom(size_t begin, const float* x, size_t n, float low, float high,
                              std::byte* below, std::byte* above);
uint32_t ScalarMaxAbsBitsFrom(size_t begin, const float* x, size_t n, uint32_t so_far);

}  // namespace runnel
