// The specification of the codecs' inner loops, and the tails of the vector ones.

#include <algorithm>
#include <bit>
#include <cstring>

#include "compress/bit_pack.h"
#include "compress/kernels/codec_kernels.h"
#include "compress/stochastic_rounding.h"

namespace runnel {
namespace {

constexpr size_t kChunk = 64;  // elements whose codes are held before they are packed

using Chunk = std::array<float, kChunk>;
using ChunkCodes = std::array<uint8_t, kChunk>;

// Sorted rank = how many thresholds are below x. Up to four bits counting them all is faster than
// descending, because the compiler can do many elements at once.
void FindRanks(const Chunk& x, const MbqSearch& search, std::array<int32_t, kChunk>* ranks) {
  ranks->fill(0);
  if (search.k <= 4) {
    for (int node = 1; node < (1 << search.k); ++node) {
      const float threshold = search.tree[node];
      for (size_t e = 0; e < kChunk; ++e) (*ranks)[e] += x[e] > threshold ? 1 : 0;
    }
    return;
  }
  for (size_t e = 0; e < kChunk; ++e) {
    int32_t prefix = 0;
    for (int level = 0; level < search.k; ++level) {
      prefix = 2 * prefix + (x[e] > search.tree[(1 << level) + prefix] ? 1 : 0);
    }
    (*ranks)[e] = prefix;
  }
}

// Adds element e to lane e % 16 where keep[e] is all ones, and 0.0 where it is 0: that changes no
// lane, because none is ever -0.0.
void AddToLanes(const Chunk& x, const std::array<int32_t, kChunk>& keep, SumLanes* lanes) {
  for (size_t base = 0; base < kChunk; base += kSumLanes) {
    for (size_t lane = 0; lane < kSumLanes; ++lane) {
      const int32_t bits = std::bit_cast<int32_t>(x[base + lane]) & keep[base + lane];
      (*lanes)[lane] += static_cast<double>(std::bit_cast<float>(bits));
    }
  }
}

// Sums and plane words of the first `count` elements of x; the rest of x is 0.
void EncodeChunk(const Chunk& x, size_t count, const MbqSearch& search, ChunkCodes* codes,
                 MbqSums* sums) {
  std::array<int32_t, kChunk> ranks, keep;
  FindRanks(x, search, &ranks);
  for (size_t e = 0; e < kChunk; ++e) {
    (*codes)[e] = static_cast<uint8_t>(search.code_of_rank[ranks[e]]);
  }
  keep.fill(-1);
  AddToLanes(x, keep, &sums->x);
  for (int i = 0; i < search.k; ++i) {
    for (size_t e = 0; e < kChunk; ++e) keep[e] = -(((*codes)[e] >> (search.k - 1 - i)) & 1);
    AddToLanes(x, keep, &sums->ones_x[i]);
  }
  std::array<std::byte, kMaxMbqBits* 8> packed = {};
  PackPlanes(codes->data(), count, search.k, packed.data(), 8);
  std::array<uint64_t, kMaxMbqBits> words;
  std::memcpy(words.data(), packed.data(), sizeof(words));
  for (int i = 0; i < search.k; ++i) {
    sums->ones[i] += std::popcount(words[i]);
    for (int j = i + 1; j < search.k; ++j) sums->differ[i][j] += std::popcount(words[i] ^ words[j]);
  }
}

}  // namespace

uint32_t ScalarMaxAbsBitsFrom(size_t begin, const float* x, size_t n, uint32_t so_far) {
  for (size_t e = begin; e < n; ++e) {
    uint32_t bits;
    std::memcpy(&bits, x + e, sizeof(bits));
    so_far = std::max(so_far, bits & 0x7FFFFFFFu);
  }
  return so_far;
}

void ScalarMbqEncodeFrom(size_t begin, const float* x, size_t n, const MbqSearch& search,
                         std::byte* planes, MbqSums* sums) {
  Chunk chunk;
  ChunkCodes codes;
  for (size_t base = begin; base < n; base += kChunk) {
    const size_t count = std::min(kChunk, n - base);
    chunk.fill(0.0f);
    std::copy(x + base, x + base + count, chunk.begin());
    EncodeChunk(chunk, count, search, &codes, sums);
    PackPlanes(codes.data(), count, search.k, planes + base / 8, PlaneBytes(n));
  }
}

void ScalarMbqDecodeFrom(size_t begin, const std::byte* planes, size_t n, const MbqLevels& levels,
                         float* out) {
  std::array<uint8_t, kChunk> codes;
  for (size_t base = begin; base < n; base += kChunk) {
    const size_t count = std::min(kChunk, n - base);
    UnpackPlanes(planes + base / 8, PlaneBytes(n), count, levels.k, codes.data());
    for (size_t e = 0; e < count; ++e) out[base + e] = levels.value[codes[e]];
  }
}

int64_t ScalarMarkOutsideFrom(size_t begin, const float* x, size_t n, float low, float high,
                              std::byte* below, std::byte* above) {
  int64_t outside = 0;
  for (size_t base = begin; base < n; base += 8) {
    const size_t count = std::min<size_t>(8, n - base);
    uint32_t is_below = 0, is_above = 0;
    for (size_t e = 0; e < count; ++e) {
      is_below |= (x[base + e] < low ? 1u : 0u) << e;
      is_above |= (x[base + e] > high ? 1u : 0u) << e;
    }
    below[base / 8] = static_cast<std::byte>(is_below);
    above[base / 8] = static_cast<std::byte>(is_above);
    outside += std::popcount(is_below | is_above);
  }
  return outside;
}

void ScalarStochasticEncode8From(size_t begin, const float* g, size_t n, float scale,
                                 const CounterRandom& random, std::byte* out) {
  for (size_t base = begin; base < n; base += 4) {
    const std::array<uint32_t, 4> bits = random.Block(base / 4);
    const size_t count = std::min<size_t>(4, n - base);
    for (size_t e = 0; e < count; ++e) {
      out[base + e] =
          static_cast<std::byte>(StochasticQuantize(g[base + e], scale, 127, bits[e] >> 8));
    }
  }
}

void ScalarStochasticEncode4From(size_t begin, const float* g, size_t n, float scale,
                                 const CounterRandom& random, std::byte* out) {
  for (size_t base = begin; base < n; base += 4) {
    const std::array<uint32_t, 4> bits = random.Block(base / 4);
    const size_t count = std::min<size_t>(4, n - base);
    std::array<uint8_t, 4> nibbles;
    for (size_t e = 0; e < count; ++e) {
      nibbles[e] =
          static_cast<uint8_t>(StochasticQuantize(g[base + e], scale, 7, bits[e] >> 8) + 8);
    }
    PackNibbles(nibbles.data(), count, out + base / 2);
  }
}

void ScalarStochasticDecode8From(size_t begin, const std::byte* q, size_t n, float scale,
                                 float* out) {
  for (size_t e = begin; e < n; ++e) {
    out[e] = static_cast<float>(static_cast<int8_t>(q[e])) * scale;
  }
}

void ScalarStochasticDecode4From(size_t begin, const std::byte* q, size_t n, float scale,
                                 float* out) {
  std::array<uint8_t, kChunk> nibbles;
  for (size_t base = begin; base < n; base += kChunk) {
    const size_t count = std::min(kChunk, n - base);
    UnpackNibbles(q + base / 2, count, nibbles.data());
    for (size_t e = 0; e < count; ++e) {
      out[base + e] = static_cast<float>(static_cast<int>(nibbles[e]) - 8) * scale;
    }
  }
}

const CodecKernels kScalarCodecKernels = {
    .name = "scalar",
    .max_abs_bits = [](const float* x, size_t n) { return ScalarMaxAbsBitsFrom(0, x, n, 0); },
    .mbq_encode =
        [](const float* x, size_t n, const MbqSearch& search, std::byte* planes, MbqSums* sums) {
          *sums = MbqSums();
          ScalarMbqEncodeFrom(0, x, n, search, planes, sums);
        },
    .mbq_decode = [](const std::byte* planes, size_t n, const MbqLevels& levels,
                     float* out) { ScalarMbqDecodeFrom(0, planes, n, levels, out); },
    .mark_outside =
        [](const float* x, size_t n, float low, float high, std::byte* below, std::byte* above) {
          return ScalarMarkOutsideFrom(0, x, n, low, high, below, above);
        },
    .stochastic_encode8 =
        [](const float* g, size_t n, float scale, const CounterRandom& random, std::byte* out) {
          ScalarStochasticEncode8From(0, g, n, scale, random, out);
        },
    .stochastic_encode4 =
        [](const float* g, size_t n, float scale, const CounterRandom& random, std::byte* out) {
          ScalarStochasticEncode4From(0, g, n, scale, random, out);
        },
    .stochastic_decode8 = [](const std::byte* q, size_t n, float scale,
                             float* out) { ScalarStochasticDecode8From(0, q, n, scale, out); },
    .stochastic_decode4 = [](const std::byte* q, size_t n, float scale,
                             float* out) { ScalarStochasticDecode4From(0, q, n, scale, out); },
    .tile = &kScalarTileKernels,
    .int8 = &kScalarInt8Kernels,
};

}  // namespace runnel
