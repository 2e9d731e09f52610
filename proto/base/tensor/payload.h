#pragma once

// Shared bytes of a frame: filled once, then immutable and passed by reference through codec,
// session and transport without copying. Blocks come from a pool and go back to it, so that a
// steady-state step allocates nothing.

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace runnel {

class BufferPool;

// Reference to a block of bytes, 64-byte aligned. Copying shares the block; the last reference
// gives it back. References may be held and dropped on any thread; writing is for the one owner
// before it shares the block.
class Payload {
 public:
  Payload() = default;
  Payload(const Payload& other);
  Payload(Payload&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Payload& operator=(Payload other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Payload();

  size_t size() const;
  bool empty() const { return size() == 0; }
  absl::Span<const std::byte> bytes() const;
  // Only before the payload is shared.
  absl::Span<std::byte> mutable_bytes();

  // A copy of the bytes, from no pool.
  static Payload CopyOf(absl::Span<const std::byte> bytes);

 private:
  friend class BufferPool;
  struct Block;
  struct PoolCore;
  explicit Payload(Block* block) : block_(block) {}
  static Block* NewBlock(size_t capacity);
  Block* block_ = nullptr;
};

// Free blocks by size class. Thread-safe. Payloads may outlive the pool.
class BufferPool {
 public:
  BufferPool();
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Uninitialised bytes. The caller has checked `size` against its limits.
  Payload Allocate(size_t size);
  // Blocks made since the start: constant in a steady state.
  int64_t blocks_made() const;

 private:
  std::shared_ptr<Payload::PoolCore> core_;
};

}  // namespace runnel
