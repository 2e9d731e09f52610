#include "proto/base/tensor/payload.h"

#include <cstring>
#include <thread>

#include "gtest/gtest.h"

namespace runnel::payload_test {
namespace {

TEST(Payload, IsAlignedSharedAndReturnedToItsPool) {
  BufferPool pool;
  const std::byte* first = nullptr;
  {
    Payload a = pool.Allocate(1000);
    EXPECT_EQ(a.size(), 1000u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.bytes().data()) % 64, 0u);
    std::memset(a.mutable_bytes().data(), 7, a.size());
    const Payload b = a;
    EXPECT_EQ(a.bytes().data(), b.bytes().data());
    first = a.bytes().data();
  }
  Payload again = pool.Allocate(900);
  EXPECT_EQ(again.bytes().data(), first);
  EXPECT_EQ(again.size(), 900u);
  EXPECT_EQ(pool.blocks_made(), 1);
}

TEST(Payload, OutlivesItsPool) {
  Payload kept;
  {
    BufferPool pool;
    kept = pool.Allocate(128);
  }
  kept.mutable_bytes()[127] = std::byte{1};
  EXPECT_EQ(kept.size(), 128u);
}

TEST(Payload, EmptyHasNoBlock) {
  BufferPool pool;
  EXPECT_TRUE(pool.Allocate(0).empty());
  EXPECT_TRUE(Payload().bytes().empty());
  EXPECT_EQ(pool.blocks_made(), 0);
}

TEST(Payload, CanBeDroppedOnAnotherThread) {
  BufferPool pool;
  for (int round = 0; round < 100; ++round) {
    Payload payload = pool.Allocate(4096);
    std::thread other([copy = payload] { EXPECT_EQ(copy.size(), 4096u); });
    payload = Payload();
    other.join();
  }
  EXPECT_EQ(pool.blocks_made(), 1);
}

}  // namespace
}  // namespace runnel::payload_test
