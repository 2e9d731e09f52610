#include "compress/bit_pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace runnel {
namespace {

static_assert(std::endian::native == std::endian::little, "eight codes are read as one word");

constexpr uint64_t kLowBits = 0x0101010101010101u;

// The low bits of eight bytes as one byte, the first in its top bit: the multiplication moves byte
// i's bit from 8 i to 63 - i, and no two of its terms meet.
unsigned GatherBits(uint64_t codes) {
  return static_cast<unsigned>(((codes & kLowBits) * 0x8040201008040201u) >> 56);
}

// The inverse: byte i is bit 7 - i.
uint64_t SpreadBits(unsigned byte) {
  const uint64_t each = (byte * kLowBits) & 0x0102040810204080u;
  return ((each + 0x7F * kLowBits) >> 7) & kLowBits;
}

}  // namespace

void PackPlanes(const uint8_t* codes, size_t n, int k, std::byte* planes, size_t stride) {
  for (size_t base = 0; base < n; base += 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, codes + base, std::min<size_t>(8, n - base));
    for (int i = 0; i < k; ++i) {
      planes[i * stride + base / 8] = static_cast<std::byte>(GatherBits(eight >> (k - 1 - i)));
    }
  }
}

void UnpackPlanes(const std::byte* planes, size_t stride, size_t n, int k, uint8_t* codes) {
  for (size_t base = 0; base < n; base += 8) {
    uint64_t eight = 0;
    for (int i = 0; i < k; ++i) {
      const auto byte = std::to_integer<unsigned>(planes[i * stride + base / 8]);
      eight = eight << 1 | SpreadBits(byte);
    }
    std::memcpy(codes + base, &eight, std::min<size_t>(8, n - base));
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
