#include "worker/replication/changed_blocks.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::changed_blocks_test {
namespace {

constexpr size_t kBlock = kChangedBlockBytes;

std::string Drawn(std::mt19937& random, size_t bytes) {
  std::string drawn(bytes, '\0');
  for (char& byte : drawn) byte = static_cast<char>(random());
  return drawn;
}

TEST(ChangedBlocks, GiveTheBytesBack) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto length = [&random] {
    const size_t around = random() % 4 * kBlock;
    return random() % 2 == 0 ? around : random() % (4 * kBlock);
  };
  for (int draw = 0; draw < 300; ++draw) {
    const std::string base = Drawn(random, length());
    std::string bytes = base;
    const size_t size = length();
    bytes.resize(std::min(size, bytes.size()));
    bytes += Drawn(random, size - bytes.size());
    for (size_t change = random() % 3; change > 0 && size > 0; --change)
      bytes[random() % size] ^= 1;
    const std::string changes = ChangedBlocks(base, bytes);
    const absl::StatusOr<std::string> again = WithChangedBlocks(base, size, changes);
    ASSERT_TRUE(again.ok()) << again.status() << ", " << base.size() << " to " << size;
    ASSERT_TRUE(*again == bytes) << base.size() << " to " << size;
  }
}

TEST(ChangedBlocks, AreFewWhereLittleHasChanged) {
  const std::string base(10 * kBlock + 100, 'b');
  EXPECT_EQ(ChangedBlocks(base, base), "");
  std::string bytes = base;
  bytes[3 * kBlock] = 'c';
  EXPECT_EQ(ChangedBlocks(base, bytes).size(), 4 + kBlock);
  bytes = base + "behind";
  EXPECT_EQ(ChangedBlocks(base, bytes).size(), 4 + 106u);
  EXPECT_EQ(ChangedBlocks(base, base.substr(0, 5 * kBlock)), "");
}

TEST(ChangedBlocks, OfNoSuchBytesAreRefused) {
  const std::string base(2 * kBlock, 'b'), bytes(3 * kBlock + 7, 'c');
  const std::string changes = ChangedBlocks(base, bytes);
  ASSERT_TRUE(WithChangedBlocks(base, bytes.size(), changes).ok());
  for (const size_t left : {size_t{2}, size_t{4}, size_t{100}, kBlock + 4, 3 * (kBlock + 4)})
    EXPECT_FALSE(WithChangedBlocks(base, bytes.size(), changes.substr(0, left)).ok()) << left;
  EXPECT_FALSE(WithChangedBlocks(base, bytes.size(), "").ok());
  EXPECT_FALSE(WithChangedBlocks(base, kBlock, changes).ok()) << "blocks beyond the end";
  std::string twice = changes;
  twice[4 + kBlock] = 0;
  EXPECT_FALSE(WithChangedBlocks(base, bytes.size(), twice).ok()) << "block 0 twice";
  std::string far = changes;
  far[3] = '\x7f';
  EXPECT_FALSE(WithChangedBlocks(base, bytes.size(), far).ok());
}

}  // namespace
}  // namespace runnel::changed_blocks_test
