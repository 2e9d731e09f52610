// Small floats of recipes fp8_chunk and mls against values made outside (tests/golden/small_floats.py).

#include <bit>
#include <cstdint>
#include <fstream>
#include <functional>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "kernels/ir/arithmetic/float_grid.h"
#include "kernels/ir/arithmetic/multi_level.h"
#include "nlohmann/json.hpp"

namespace runnel::small_floats_test {
namespace {

// As the golden file has it: of all codes, all halfway points and the quarters between.
std::string DigestOf(const std::function<float(float)>& rounded, float most) {
  uint64_t hashed = 0xcbf29ce484222325;
  for (uint32_t pattern = 0; pattern < 0x7f800000; pattern += 1u << 12) {
    const auto x = std::bit_cast<float>(pattern);
    if (x > most) break;
    hashed = (hashed ^ std::bit_cast<uint32_t>(rounded(x))) * 0x100000001b3;
  }
  return absl::StrFormat("%016x", hashed);
}

TEST(SmallFloats, AreThoseMadeOutside) {
  std::ifstream file(RUNNEL_SOURCE_DIR "/tests/golden/small_floats.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden.size(), 30u);
  for (const nlohmann::json& format : golden) {
    const int exponent = format["exponent_bits"], mantissa = format["mantissa_bits"];
    SCOPED_TRACE(absl::StrCat(format["recipe"].get<std::string>(), " ", exponent, ",", mantissa));
    if (format["recipe"] == "mls") {
      const MultiLevelFormat levels = {exponent, mantissa};
      EXPECT_EQ(DigestOf([&](float x) { return MultiLevelValue(x, 0.5f, levels); }, 1),
                format["digest"]);
    } else {
      const FloatGrid grid(exponent, mantissa);
      EXPECT_EQ(DigestOf([&](float x) { return grid.Nearest(x); }, INFINITY), format["digest"]);
    }
  }
}

}  // namespace
}  // namespace runnel::small_floats_test
