#include "compress/bit_pack.h"

#include <algorithm>

namespace runnel {

void PackPlanes(const uint8_t* codes, size_t n, int k, std::byte* planes, size_t stride) {
  for (int i = 0; i < k; ++i) {
    const int shift = k - 1 - i;
    std::byte* plane = planes + i * stride;
    for (size_t base = 0; base < n; base += 8) {
      const size_t count = std::min<size_t>(8, n - base);
      unsigned byte = 0;
      for (size_t j = 0; j < count; ++j) byte |= ((codes[base + j] >> shift) & 1u) << (7 - j);
      plane[base / 8] = static_cast<std::byte>(byte);
    }
  }
}

void UnpackPlanes(const std::byte* planes, size_t stride, size_t n, int k, uint8_t* codes) {
  std::fill(codes, codes + n, uint8_t{0});
  for (int i = 0; i < k; ++i) {
    const std::byte* plane = planes + i * stride;
    for (size_t e = 0; e < n; ++e) {
      const unsigned bit = (std::to_integer<unsigned>(plane[e / 8]) >> (7 - e % 8)) & 1u;
      codes[e] = static_cast<uint8_t>(codes[e] << 1 | bit);
    }
  }
}

void PackNibbles(const uint8_t* nibbles, size_t n, std::byte* packed) {
  for (size_t e = 0; e < n; e += 2) {
    const unsigned low = e + 1 < n ? nibbles[e + 1] & 15u : 0u;
    packed[e / 2] = static_cast<std::byte>((nibbles[e] & 15u) << 4 | low);
  }
}

void UnpackNibbles(const std::byte* packed, size_t n, uint8_t* nibbles) {
  for (size_t e = 0; e < n; ++e) {
    const unsigned byte = std::to_integer<unsigned>(packed[e / 2]);
    nibbles[e] = static_cast<uint8_t>(e % 2 == 0 ? byte >> 4 : byte & 15u);
  }
}

}  // namespace runnel
