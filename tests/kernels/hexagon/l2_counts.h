#pragma once

// What l2_model.cc counts, in memory that it shares with a test.

#include <atomic>
#include <cstdint>

namespace runnel::hexagon {

// A cache line's bytes, and the cache: a Hexagon V66 to V75 has 1 MiB of L2.
inline constexpr uint32_t kL2LineBytes = 64, kL2Bytes = 1 << 20, kL2Ways = 8;

struct L2Counts {
  // Raised by the test while the program waits for a request: the next access finds an empty cache
  // and counts of zero.
  std::atomic<uint64_t> resets;
  std::atomic<uint64_t> loaded_lines;   // from memory
  std::atomic<uint64_t> written_lines;  // to memory, when they made room
  std::atomic<uint64_t> dirty_lines;    // in the cache, still to be written
  std::atomic<uint64_t> vtcm_bytes;     // read and written in tightly coupled memory

  uint64_t MemoryBytes() const {
    return (loaded_lines + written_lines + dirty_lines) * kL2LineBytes;
  }
};

}  // namespace runnel::hexagon
