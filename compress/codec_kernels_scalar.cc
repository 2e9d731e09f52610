// The specification of the codecs' inner loops, and the tails of the vector ones.

#include <algorithm>
#include <cstring>

#include "compress/bit_pack.h"
#include "compress/codec_kernels.h"
#include "compress/stochastic_rounding.h"

namespace runnel {
namespace {

constexpr size_t kChunk = 64;  // elements whose codes are held before they are packed

int32_t CodeOf(float x, const MbqSearch& search) {
  size_t prefix = 0;
  for (int level = 0; level < search.k; ++level) {
    const bool above = x > search.tree[(size_t{1} << level) + prefix];
    prefix = 2 * prefix + (above ? 1 : 0);
  }
  return search.code_of_rank[prefix];
}

// Popcounts from how often each code occurs.
void AddCounts(const std::array<int64_t, 256>& occurs, int k, MbqSums* sums) {
  for (int code = 0; code < (1 << k); ++code) {
    for (int i = 0; i < k; ++i) {
      const int bit_i = (code >> (k - 1 - i)) & 1;
      sums->ones[i] += bit_i * occurs[code];
      for (int j = i + 1; j < k; ++j) {
        sums->differ[i][j] += (bit_i ^ ((code >> (k - 1 - j)) & 1)) * occurs[code];
      }
    }
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
  std::array<int64_t, 256> occurs = {};
  std::array<uint8_t, kChunk> codes;
  const int k = search.k;
  for (size_t base = begin; base < n; base += kChunk) {
    const size_t count = std::min(kChunk, n - base);
    for (size_t e = 0; e < count; ++e) {
      const double value = x[base + e];
      const int32_t code = CodeOf(x[base + e], search);
      codes[e] = static_cast<uint8_t>(code);
      ++occurs[code];
      const size_t lane = e % kSumLanes;
      sums->x[lane] += value;
      for (int i = 0; i < k; ++i) {
        // Adding 0.0 changes no lane: none is ever -0.0.
        sums->ones_x[i][lane] += (code >> (k - 1 - i)) & 1 ? value : 0.0;
      }
    }
    PackPlanes(codes.data(), count, k, planes + base / 8, PlaneBytes(n));
  }
  AddCounts(occurs, k, sums);
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
};

}  // namespace runnel
