#pragma once

// Codes of 4 bits and fewer, two a byte. Pure functions; any thread.

#include <algorithm>
#include <cstdint>

namespace runnel {

inline constexpr int kPairedBits = 4;  // at most
// Codes whose bytes lie together; of fewer, what is left.
inline constexpr int64_t kPairedAtOnce = 128;

constexpr int64_t PairedBytes(int64_t count) { return (count + 1) / 2; }

// Byte i holds code i in its lower half, and in its upper one code i + half, 0 where there is none;
// half = PairedBytes(count), count <= kPairedAtOnce.
inline void PackPairs(const int8_t* codes, int64_t count, uint8_t* packed) {
  const int64_t half = PairedBytes(count), pairs = count - half;
  for (int64_t i = 0; i < pairs; ++i)
    packed[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[half + i] & 15) << 4);
  if (pairs < half) packed[pairs] = static_cast<uint8_t>(codes[pairs] & 15);
}

inline void UnpackPairs(const uint8_t* packed, int64_t count, int8_t* codes) {
  const int64_t half = PairedBytes(count);
  for (int64_t i = 0; i < half; ++i) {
    const auto lower = static_cast<int8_t>(packed[i] << 4);
    codes[i] = static_cast<int8_t>(lower >> 4);
  }
  for (int64_t i = 0; i < count - half; ++i)
    codes[half + i] = static_cast<int8_t>(static_cast<int8_t>(packed[i]) >> 4);
}

// body(first code, codes, first byte) of each group that lies together.
template <typename Body>
void OverPairs(int64_t count, const Body& body) {
  for (int64_t at = 0; at < count; at += kPairedAtOnce)
    body(at, std::min(kPairedAtOnce, count - at), at / 2);
}

}  // namespace runnel
