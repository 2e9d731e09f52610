// The codecs against tests/golden/mbq.json, which an independent program made.

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "compress/bit_pack.h"
#include "compress/codec.h"
#include "compress/mbq/mbq_math.h"
#include "compress/stochastic_rounding.h"
#include "gtest/gtest.h"

namespace runnel::golden_test {
namespace {

using nlohmann::json;

const json& Golden() {
  static const json golden = [] {
    std::ifstream file(RUNNEL_SOURCE_DIR "/tests/golden/mbq.json");
    return json::parse(file);
  }();
  return golden;
}

std::vector<std::byte> FromHex(const std::string& hex) {
  std::vector<std::byte> bytes(hex.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

std::vector<float> Floats(const json& hex) {
  const std::vector<std::byte> bytes = FromHex(hex.get<std::string>());
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

int64_t UlpsApart(float a, float b) {
  const auto ordered = [](float v) {
    const auto bits = std::bit_cast<int32_t>(v);
    return bits < 0 ? int64_t{INT32_MIN} - bits : int64_t{bits};
  };
  return std::abs(ordered(a) - ordered(b));
}

std::string Codes(const std::vector<std::byte>& payload, int k, size_t n) {
  std::vector<uint8_t> codes(n);
  UnpackPlanes(payload.data() + 4 * (k + 1), PlaneBytes(n), n, k, codes.data());
  std::string text;
  for (uint8_t code : codes) text += "0123456789abcdef"[code];
  return text;
}

void ExpectStep(const json& step, const Codec& codec, const std::vector<std::byte>& payload, int k,
                const Shape& shape) {
  const auto n = static_cast<size_t>(shape.elements());
  const auto* sent = reinterpret_cast<const float*>(payload.data());
  EXPECT_EQ(Codes(payload, k, n), step["codes"].get<std::string>());
  const std::vector<std::byte> packed = FromHex(step["packed"].get<std::string>());
  ASSERT_EQ(packed.size() + 4 * (k + 1), payload.size());
  EXPECT_EQ(std::memcmp(payload.data() + 4 * (k + 1), packed.data(), packed.size()), 0);
  const std::vector<float> alpha = Floats(step["alpha_hex"]);
  for (int i = 0; i < k; ++i) EXPECT_LE(UlpsApart(sent[i], alpha[i]), 1) << "alpha " << i;
  EXPECT_NEAR(sent[k], step["m_q"].get<double>(), 1e-6);
  std::vector<float> decoded(n);
  ASSERT_TRUE(codec.Decode(payload, MutableViewOf(absl::MakeSpan(decoded), shape)).ok());
  const std::vector<float> expected = Floats(step["reconstructed_hex"]);
  for (size_t e = 0; e < n; ++e) EXPECT_NEAR(decoded[e], expected[e], 1e-6) << "element " << e;
}

// The canonical state stands at the end of the saved bytes.
void ExpectState(const json& step, const Encoder& encoder, int k) {
  const std::string state = encoder.SaveState();
  const std::vector<float> next = Floats(step["state_next_hex"]);
  ASSERT_GE(state.size(), 4u * k);
  for (int i = 0; i < k; ++i) {
    float kept;
    std::memcpy(&kept, state.data() + state.size() - 4 * (k - i), 4);
    EXPECT_LE(UlpsApart(kept, next[i]), 1) << "kept alpha " << i;
  }
}

TEST(MbqGolden, EveryStepOfEveryCase) {
  int steps = 0;
  for (const json& c : Golden()["cases"]) {
    const int k = c["k"];
    const auto codec = MakeCodec(absl::StrCat("mbq:", k));
    ASSERT_TRUE(codec.ok());
    const auto shape = Shape::Create(c["shape"].get<std::vector<int64_t>>());
    ASSERT_TRUE(shape.ok());
    const auto encoder = (*codec)->NewEncoder({});
    for (const json& step : c["steps"]) {
      SCOPED_TRACE(
          absl::StrCat(c["name"].get<std::string>(), ", k ", k, ", t ", step["t"].get<int>()));
      const std::vector<float> x = Floats(step["x_hex"]);
      std::vector<std::byte> payload((*codec)->EncodedBytes(*shape).value());
      ASSERT_TRUE(encoder
                      ->Encode(ViewOf(x, *shape), Sequence(steps), step["init"].get<bool>(),
                               absl::MakeSpan(payload))
                      .ok());
      ExpectStep(step, **codec, payload, k, *shape);
      ExpectState(step, *encoder, k);
      ++steps;
    }
  }
  EXPECT_EQ(steps, 81);
}

// The solutions of the least squares before they are mixed.
TEST(MbqGolden, LeastSquares) {
  int solved = 0;
  for (const json& c : Golden()["cases"]) {
    const int k = c["k"];
    for (const json& step : c["steps"]) {
      if (step["alpha_star"].is_null()) continue;
      const std::vector<float> x = Floats(step["x_hex"]);
      Alphas alpha = {};
      std::ranges::copy(Floats(step["alpha_prev_hex"]), alpha.begin());
      std::vector<std::byte> planes(k * PlaneBytes(x.size()));
      MbqSums sums;
      kScalarCodecKernels.mbq_encode(x.data(), x.size(), MakeSearch(alpha, k), planes.data(),
                                     &sums);
      std::array<double, kMaxMbqBits> star = {};
      ASSERT_TRUE(SolveAlphas(sums, x.size(), k, &star));
      for (int i = 0; i < k; ++i) EXPECT_NEAR(star[i], step["alpha_star"][i].get<double>(), 1e-9);
      EXPECT_DOUBLE_EQ(EmaWeight(step["t"]), step["beta"].get<double>());
      ++solved;
    }
  }
  EXPECT_GT(solved, 30);
}

TEST(MbqGolden, LevelTables) {
  for (const json& table : Golden()["level_tables"]) {
    Alphas alpha = {};
    const int k = static_cast<int>(table["alpha"].size());
    for (int i = 0; i < k; ++i) alpha[i] = table["alpha"][i];
    const MbqSearch search = MakeSearch(alpha, k);
    for (int rank = 0; rank < (1 << k); ++rank) {
      EXPECT_EQ(search.code_of_rank[rank], table["codes"][rank].get<int>());
      EXPECT_NEAR(LevelOf(alpha, k, search.code_of_rank[rank]), table["levels"][rank].get<double>(),
                  1e-7);
    }
    for (int level = 0; level < k; ++level) {
      for (int prefix = 0; prefix < (1 << level); ++prefix) {
        const int below = ((2 * prefix + 1) << (k - 1 - level)) - 1;
        EXPECT_NEAR(search.tree[(1 << level) + prefix], table["thresholds"][below].get<double>(),
                    1e-6);
      }
    }
  }
}

TEST(StochasticGolden, ScaleCodesAndBytes) {
  for (const json& c : Golden()["stochastic"]) {
    const int bits = c["k"];
    SCOPED_TRACE(absl::StrCat(c["name"].get<std::string>(), ", ", bits, " bits"));
    const std::vector<float> g = Floats(c["g_hex"]);
    const std::vector<float> u = Floats(c["u_hex"]);
    const float scale = Floats(c["scale_hex"])[0];
    std::vector<uint8_t> offset;
    for (size_t e = 0; e < g.size(); ++e) {
      const auto u24 = static_cast<uint32_t>(u[e] * 0x1p24f);
      ASSERT_EQ(static_cast<float>(u24) * 0x1p-24f, u[e]);
      const int q = scale == 0 ? 0 : StochasticQuantize(g[e], scale, bits == 8 ? 127 : 7, u24);
      EXPECT_EQ(q, c["q"][e].get<int>()) << "element " << e;
      offset.push_back(static_cast<uint8_t>(bits == 8 ? q : q + 8));
    }
    const std::vector<std::byte> packed = FromHex(c["packed"].get<std::string>());
    std::vector<std::byte> ours(bits == 8 ? g.size() : NibbleBytes(g.size()));
    if (bits == 8) {
      std::memcpy(ours.data(), offset.data(), offset.size());
    } else {
      PackNibbles(offset.data(), offset.size(), ours.data());
    }
    EXPECT_EQ(ours, packed);

    // The whole codec: its draws are its own, its scale and its zeros are the golden ones.
    const auto codec = MakeCodec(absl::StrCat("stochastic:", bits));
    ASSERT_TRUE(codec.ok());
    const Shape shape = {static_cast<int64_t>(g.size())};
    std::vector<std::byte> payload((*codec)->EncodedBytes(shape).value());
    ASSERT_EQ(payload.size(), 4 + packed.size());
    ASSERT_TRUE((*codec)
                    ->NewEncoder({})
                    ->Encode(ViewOf(g, shape), Sequence(0), true, absl::MakeSpan(payload))
                    .ok());
    EXPECT_EQ(std::memcmp(payload.data(), &scale, 4), 0);
    if (scale == 0) {
      EXPECT_EQ(std::memcmp(payload.data() + 4, packed.data(), packed.size()), 0);
    }
  }
}

}  // namespace
}  // namespace runnel::golden_test
