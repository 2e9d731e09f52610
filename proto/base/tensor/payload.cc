#include "proto/base/tensor/payload.h"

#include <bit>
#include <cstring>
#include <new>

namespace runnel {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

// A block's header; its data follows at the next 64-byte boundary.
struct alignas(64) Payload::Block {
  std::atomic<int32_t> references{1};
  size_t size = 0;
  size_t capacity = 0;
  std::shared_ptr<PoolCore> pool;  // null: the block is freed

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

struct Payload::PoolCore {
  static constexpr int kClasses = 64;  // capacities are powers of two

  std::mutex mutex;
  std::vector<Block*> free[kClasses];  // guarded by mutex
  int64_t blocks_made = 0;             // guarded by mutex

  ~PoolCore() {
    for (auto& blocks : free) {
      for (Block* block : blocks) {
        block->~Block();
        ::operator delete(block, kAlignment);
      }
    }
  }
};

Payload::Block* Payload::NewBlock(size_t capacity) {
  void* memory = ::operator new(sizeof(Block) + capacity, kAlignment);
  Block* block = new (memory) Block;
  block->capacity = capacity;
  return block;
}

Payload::Payload(const Payload& other) : block_(other.block_) {
  if (block_ != nullptr) block_->references.fetch_add(1, std::memory_order_relaxed);
}

Payload::~Payload() {
  if (block_ == nullptr || block_->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // The pool must not be destroyed by the block that returns to it: hold it here.
  std::shared_ptr<PoolCore> pool = std::move(block_->pool);
  if (pool == nullptr) {
    block_->~Block();
    ::operator delete(block_, kAlignment);
    return;
  }
  std::lock_guard<std::mutex> lock(pool->mutex);
  pool->free[std::bit_width(block_->capacity) - 1].push_back(block_);
}

size_t Payload::size() const { return block_ == nullptr ? 0 : block_->size; }

absl::Span<const std::byte> Payload::bytes() const {
  return block_ == nullptr ? absl::Span<const std::byte>()
                           : absl::MakeConstSpan(block_->data(), block_->size);
}

absl::Span<std::byte> Payload::mutable_bytes() {
  return block_ == nullptr ? absl::Span<std::byte>() : absl::MakeSpan(block_->data(), block_->size);
}

Payload Payload::CopyOf(absl::Span<const std::byte> bytes) {
  if (bytes.empty()) return Payload();
  Payload payload(NewBlock(bytes.size()));
  payload.block_->size = bytes.size();
  std::memcpy(payload.block_->data(), bytes.data(), bytes.size());
  return payload;
}

BufferPool::BufferPool() : core_(std::make_shared<Payload::PoolCore>()) {}
BufferPool::~BufferPool() = default;

Payload BufferPool::Allocate(size_t size) {
  if (size == 0) return Payload();
  const size_t capacity = std::bit_ceil(size < 64 ? size_t{64} : size);
  Payload::Block* block = nullptr;
  {
    std::lock_guard<std::mutex> lock(core_->mutex);
    auto& free = core_->free[std::bit_width(capacity) - 1];
    if (!free.empty()) {
      block = free.back();
      free.pop_back();
    } else {
      ++core_->blocks_made;
    }
  }
  if (block == nullptr) block = Payload::NewBlock(capacity);
  block->references.store(1, std::memory_order_relaxed);
  block->size = size;
  block->pool = core_;
  return Payload(block);
}

int64_t BufferPool::blocks_made() const {
  std::lock_guard<std::mutex> lock(core_->mutex);
  return core_->blocks_made;
}

}  // namespace runnel
