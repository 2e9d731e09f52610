#pragma once

// Bits and nibbles in the order in which they stand on a link (AccEPT 3.3, "Forward Encoder" and
// "Backward Encoder"). Plain portable code: the vector kernels write
// the same bytes, a test compares them with these functions.
//
// A plane holds one bit of every element: element 0 in the top bit (0x80) of byte 0, unused low
// bits of the last byte 0. Eight consecutive elements in memory order share a byte; the paper takes
// them along the batch, which has the same size but needs a batch that is a multiple of 8.
//
// Pure functions; any thread. Nothing is checked: sizes are the caller's business.

#include <cstddef>
#include <cstdint>

namespace runnel {

// Bytes of one bit plane of n elements.
constexpr size_t PlaneBytes(size_t n) { return (n + 7) / 8; }

// Bytes of n nibbles.
constexpr size_t NibbleBytes(size_t n) { return (n + 1) / 2; }

// Splits n codes of k bits (k = 1..8) into k planes, most significant bit first; plane i begins at
// planes + i * stride and PlaneBytes(n) bytes of it are written.
void PackPlanes(const uint8_t* codes, size_t n, int k, std::byte* planes, size_t stride);

// The inverse; reads PlaneBytes(n) bytes of each plane and ignores the unused bits.
void UnpackPlanes(const std::byte* planes, size_t stride, size_t n, int k, uint8_t* codes);

// Two nibbles a byte: element 2i high, element 2i + 1 low, an odd tail leaves the low nibble 0.
// Only the low four bits of each input count.
void PackNibbles(const uint8_t* nibbles, size_t n, std::byte* packed);

// The inverse: values 0..15.
void UnpackNibbles(const std::byte* packed, size_t n, uint8_t* nibbles);

}  // namespace runnel
