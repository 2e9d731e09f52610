// Integer Winograd: exact, so every comparison is for equality.

#include "kernels/ir/arithmetic/winograd.h"

#include <cstdlib>

#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "tests/kernels/inference/golden.h"
#include "tests/kernels/inference/run_graph.h"

namespace runnel::inference::winograd_test {
namespace {

using nlohmann::json;

// One tile of `channels` channels: d (16, channels) and w (9, channels), by position.
struct Tile {
  int64_t channels = 1;
  std::vector<int8_t> d, w;
};

void ExpectExact(const Tile& tile) {
  const int64_t c = tile.channels;
  std::vector<int8_t> v(16 * c), u(16 * c);
  const int8_t* rows[16];
  for (int p = 0; p < 16; ++p) rows[p] = &tile.d[p * c];
  WinogradInput(rows, c, v.data(), c);
  int32_t m[16] = {};
  for (int64_t i = 0; i < c; ++i) WinogradFilter(&tile.w[i], c, &u[i], c);
  for (int64_t i = 0; i < 16 * c; ++i) {
    ASSERT_LE(std::abs(v[i]), 124);
    ASSERT_LE(std::abs(u[i]), 63);
    m[i / c] += v[i] * u[i];
  }
  int32_t y[4];
  WinogradOutput(m, 1, y);
  for (int at = 0; at < 4; ++at) {
    int32_t direct = 0;
    for (int64_t i = 0; i < 9 * c; ++i) {
      const int64_t tap = i / c, h = at / 2 + tap / 3, w = at % 2 + tap % 3;
      direct += tile.d[(h * 4 + w) * c + i % c] * tile.w[i];
    }
    ASSERT_EQ(y[at], direct);
  }
}

// By seed: uniform values, or extreme ones alone.
Tile RandomTile(uint64_t seed, bool extreme) {
  const CounterRandom random(seed, RandomPurpose::kTest, 2, extreme ? 1 : 0);
  Tile tile;
  tile.channels = 1 + random.Below(0, 5);
  uint64_t next = 1;
  const auto draw = [&](int most) {
    const auto value = extreme ? (random.Below(next, 2) == 0 ? -most : most)
                               : static_cast<int>(random.Below(next, 2 * most + 1)) - most;
    ++next;
    return static_cast<int8_t>(value);
  };
  for (int64_t i = 0; i < 16 * tile.channels; ++i) tile.d.push_back(draw(kWinogradInputMax));
  for (int64_t i = 0; i < 9 * tile.channels; ++i) tile.w.push_back(draw(kWinogradWeightMax));
  return tile;
}

TEST(Winograd, TwentyThousandRandomTilesAreExact) {
  for (uint64_t seed = 0; seed < 20'000; ++seed) ExpectExact(RandomTile(seed, seed % 4 == 3));
}

// Every corner of the range: each transformed factor is a sum of single inputs with signs, so its
// bounds are at tiles whose values are all extreme. All of them for the inputs, all for the
// weights.
TEST(Winograd, AllExtremeTilesAreExact) {
  for (uint32_t signs = 0; signs < 1u << 16; ++signs) {
    Tile tile;
    for (int i = 0; i < 16; ++i) {
      tile.d.push_back((signs >> i & 1) != 0 ? kWinogradInputMax : -kWinogradInputMax);
    }
    for (int i = 0; i < 9; ++i) {
      tile.w.push_back((signs >> (i + 7) & 1) != 0 ? kWinogradWeightMax : -kWinogradWeightMax);
    }
    ExpectExact(tile);
  }
  for (uint32_t signs = 0; signs < 1u << 9; ++signs) {
    Tile tile;
    tile.d.assign(16, kWinogradInputMax);
    for (int i = 0; i < 9; ++i) {
      tile.w.push_back((signs >> i & 1) != 0 ? kWinogradWeightMax : -kWinogradWeightMax);
    }
    ExpectExact(tile);
  }
}

std::vector<int> Numbers(const json& list) {
  std::vector<int> numbers;
  for (const json& one : list) {
    if (one.is_array()) {
      const std::vector<int> inner = Numbers(one);
      numbers.insert(numbers.end(), inner.begin(), inner.end());
    } else {
      numbers.push_back(one);
    }
  }
  return numbers;
}

// A convolution whose sums are its logits, after the samples as codes of scale 1.
Int8Graph SumsOf(const json& one, bool winograd) {
  Int8Graph graph;
  graph.nodes.resize(2);
  Int8Node& input = graph.nodes[0];
  input.node.shape.out_c = one["x_shape"][1];
  input.node.shape.out_h = one["x_shape"][2];
  input.node.shape.out_w = one["x_shape"][3];
  input.coding.max_code = kWinogradInputMax;
  Int8Node& conv = graph.nodes[1];
  conv.node.kind = NodeKind::kConv;
  conv.node.inputs[0] = 0;
  ConvShape& s = conv.node.shape;
  s.out_c = one["w_shape"][0];
  s.kernel_h = s.kernel_w = 3;
  s.pad_h = s.pad_w = one["pad"];
  const std::vector<int> oihw = Numbers(one["w"]);
  const int64_t ins = one["w_shape"][1];
  for (int64_t o = 0; o < s.out_c; ++o) {
    for (int64_t tap = 0; tap < 9; ++tap) {
      for (int64_t i = 0; i < ins; ++i) {
        conv.weights.push_back(static_cast<int8_t>(oihw[(o * ins + i) * 9 + tap]));
      }
    }
  }
  conv.bias.assign(s.out_c, 0);
  conv.logit_scales.assign(s.out_c, 1.0);
  conv.winograd = winograd;
  return graph;
}

TEST(Winograd, TransformsAreTheGoldenOnes) {
  const json golden = Golden("int8_winograd.json");
  for (const json& one : golden["cases"]) {
    SCOPED_TRACE(one["name"]);
    const std::vector<int> w = Numbers(one["w"]), u = Numbers(one["U4"]);
    ASSERT_EQ(u.size(), w.size() / 9 * 16);
    for (size_t filter = 0; filter < w.size() / 9; ++filter) {
      const std::vector<int8_t> taps(w.begin() + filter * 9, w.begin() + filter * 9 + 9);
      int8_t made[16];
      WinogradFilter(taps.data(), 1, made, 1);
      for (int p = 0; p < 16; ++p) ASSERT_EQ(made[p], u[filter * 16 + p]);
    }
    const std::vector<int> v = Numbers(one["V"]), x = Numbers(one["x"]);
    const int64_t c = one["x_shape"][1], h = one["x_shape"][2], width = one["x_shape"][3];
    const int64_t pad = one["pad"], across = (width + 2 * pad - 2 + 1) / 2;
    const int64_t down = (h + 2 * pad - 2 + 1) / 2;
    ASSERT_EQ(static_cast<int64_t>(v.size()), int64_t{one["x_shape"][0]} * down * across * c * 16);
    for (size_t at = 0; at < v.size() / 16; ++at) {
      const int64_t channel = static_cast<int64_t>(at) % c, tile = static_cast<int64_t>(at) / c;
      const int64_t n = tile / (down * across), t = tile % (down * across);
      int8_t d[16];
      const int8_t* pixels[16];
      for (int p = 0; p < 16; ++p) {
        const int64_t row = t / across * 2 - pad + p / 4, column = t % across * 2 - pad + p % 4;
        const bool inside = row >= 0 && row < h && column >= 0 && column < width;
        d[p] = inside ? static_cast<int8_t>(x[((n * c + channel) * h + row) * width + column]) : 0;
        pixels[p] = &d[p];
      }
      int8_t made[16];
      WinogradInput(pixels, 1, made, 1);
      for (int p = 0; p < 16; ++p) ASSERT_EQ(made[p], v[at * 16 + p]) << "tile " << at;
    }
  }
}

TEST(Winograd, ConvolutionsAreTheGoldenOnesOnEveryInstructionSet) {
  const json golden = Golden("int8_winograd.json");
  ASSERT_EQ(golden["cases"].size(), 3u);
  for (const json& one : golden["cases"]) {
    for (bool winograd : {true, false}) {
      Int8Graph graph = SumsOf(one, winograd);
      ASSERT_TRUE(CheckAndInfer(graph).ok()) << CheckAndInfer(graph);
      const std::vector<int> x = Numbers(one["x"]), y = Numbers(one["y"]);
      const std::vector<float> samples(x.begin(), x.end());
      const int64_t batch = one["x_shape"][0];
      for (const std::string& set : CpuInstructionSets()) {
        SCOPED_TRACE(testing::Message() << one["name"] << " " << set << " " << winograd);
        const auto runner = RunnerOf(graph, MakeCappedCpuBackend(set, 1).value());
        const std::vector<float> sums = LogitsOf(*runner, graph, samples, batch);
        ASSERT_EQ(sums.size(), y.size());
        // NHWC here, NCHW there.
        const ConvShape& s = graph.nodes[1].node.shape;
        const int64_t positions = s.out_h * s.out_w;
        for (size_t i = 0; i < y.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          const int64_t n = at / (s.out_c * positions), o = at / positions % s.out_c;
          ASSERT_EQ(sums[(n * positions + at % positions) * s.out_c + o], y[i]) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace runnel::inference::winograd_test
