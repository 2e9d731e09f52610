#include "compress/bit_pack.h"

#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace runnel::bit_pack_test {
namespace {

std::vector<uint8_t> RandomCodes(size_t n, int bits, uint64_t seed) {
  const CounterRandom random(seed, RandomPurpose::kTest, 0, 0);
  std::vector<uint8_t> codes(n);
  for (size_t e = 0; e < n; ++e) codes[e] = static_cast<uint8_t>(random.Below(e, 1u << bits));
  return codes;
}

TEST(BitPack, ThePapersExample) {
  // AccEPT figure 6: (0 0 1 1 0 1 1 0) is 54.
  const uint8_t codes[] = {0, 0, 1, 1, 0, 1, 1, 0};
  std::byte packed;
  PackPlanes(codes, 8, 1, &packed, 1);
  EXPECT_EQ(std::to_integer<int>(packed), 54);
}

TEST(BitPack, PlanesAreMostSignificantFirstAndPadded) {
  const uint8_t codes[] = {3, 2, 1, 0};
  std::byte packed[2];
  PackPlanes(codes, 4, 2, packed, 1);
  EXPECT_EQ(std::to_integer<int>(packed[0]), 0xC0);
  EXPECT_EQ(std::to_integer<int>(packed[1]), 0xA0);
}

TEST(BitPack, PlanesRoundTrip) {
  for (int k = 1; k <= 8; ++k) {
    for (size_t n : {1, 7, 8, 9, 63, 64, 65, 1000}) {
      const std::vector<uint8_t> codes = RandomCodes(n, k, 10 * n + k);
      std::vector<std::byte> planes(k * PlaneBytes(n), std::byte{0xFF});
      PackPlanes(codes.data(), n, k, planes.data(), PlaneBytes(n));
      std::vector<uint8_t> back(n, 0xEE);
      UnpackPlanes(planes.data(), PlaneBytes(n), n, k, back.data());
      EXPECT_EQ(back, codes) << "k " << k << ", n " << n;
      for (size_t unused = n; unused < 8 * PlaneBytes(n); ++unused) {
        const auto last = std::to_integer<unsigned>(planes[PlaneBytes(n) - 1]);
        EXPECT_EQ((last >> (7 - unused % 8)) & 1u, 0u);
      }
    }
  }
}

TEST(BitPack, NibblesRoundTrip) {
  for (size_t n : {1, 2, 3, 8, 101}) {
    const std::vector<uint8_t> nibbles = RandomCodes(n, 4, n);
    std::vector<std::byte> packed(NibbleBytes(n), std::byte{0xFF});
    PackNibbles(nibbles.data(), n, packed.data());
    EXPECT_EQ(std::to_integer<int>(packed[0]) >> 4, nibbles[0]);
    if (n % 2 == 1) {
      EXPECT_EQ(std::to_integer<int>(packed.back()) & 15, 0);
    }
    std::vector<uint8_t> back(n);
    UnpackNibbles(packed.data(), n, back.data());
    EXPECT_EQ(back, nibbles);
  }
}

}  // namespace
}  // namespace runnel::bit_pack_test
