#include "predictor/networks/mlp.h"

#include <cmath>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

LinearLayer Random(int inputs, int outputs, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.5f);
  LinearLayer layer{inputs, outputs, {}, {}};
  for (int i = 0; i < inputs * outputs; ++i) layer.weights.push_back(normal(random));
  for (int i = 0; i < outputs; ++i) layer.bias.push_back(normal(random));
  return layer;
}

Mlp RandomMlp(uint32_t seed) {
  std::mt19937 random(seed);
  Mlp mlp;
  mlp.encoding_mean = {1, 2, 3};
  mlp.encoding_scale = {1, 0.5f, 2};
  mlp.hardware_mean = {-1, -2};
  mlp.hardware_scale = {0.25f, 3};
  mlp.output_mean = -4;
  mlp.output_scale = 1.5f;
  mlp.encoding_1 = Random(3, 5, random);
  mlp.encoding_2 = Random(5, 4, random);
  mlp.joint_1 = Random(6, 7, random);
  mlp.joint_2 = Random(7, 1, random);
  return mlp;
}

// One unit a layer: the whole network by hand.
TEST(Mlp, ByHand) {
  Mlp mlp;
  mlp.encoding_mean = {1};
  mlp.encoding_scale = {2};
  mlp.hardware_mean = {10};
  mlp.hardware_scale = {5};
  mlp.output_mean = 100;
  mlp.output_scale = 10;
  mlp.encoding_1 = {1, 1, {2}, {1}};
  mlp.encoding_2 = {1, 1, {3}, {-1}};
  mlp.joint_1 = {2, 1, {1, -2}, {0.5f}};
  mlp.joint_2 = {1, 1, {4}, {-3}};
  ASSERT_TRUE(CheckMlp(mlp).ok());
  // (5 - 1) / 2 = 2 -> 5 -> 14; h: (5 - 10) / 5 = -1; 14 + 2 + 0.5 = 16.5 -> 63 -> 730.
  EXPECT_DOUBLE_EQ(mlp.Evaluate({5}, {5}), 730);
  // ReLU: -9 / 2 * 2 + 1 < 0 -> 0 -> 0; h = 0: 0.5 -> -1 -> 90.
  EXPECT_DOUBLE_EQ(mlp.Evaluate({-8}, {10}), 90);
}

TEST(Mlp, ComesBackAsItWas) {
  const Mlp mlp = RandomMlp(7);
  const absl::StatusOr<Mlp> back = ParseMlp(FormatMlp(mlp));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, mlp);
}

TEST(Mlp, SaysWhatIsWrong) {
  const std::string good = FormatMlp(RandomMlp(7));
  const auto error = [](const std::string& text) {
    return std::string(ParseMlp(text).status().message());
  };
  EXPECT_THAT(error(""), HasSubstr("does not begin with"));
  EXPECT_THAT(error("runnel-mlp 1\n0 5 4 2 7\n"), HasSubstr("encoding's size"));
  EXPECT_THAT(error("runnel-mlp 1\n3 4097 4 2 7\n"), HasSubstr("encoding_1's size"));
  // Sizes that would need gigabytes: the words are not there, so nothing is allocated.
  EXPECT_THAT(error("runnel-mlp 1\n4096 4096 4096 4096 4096\n1\n"), HasSubstr("ends within"));
  EXPECT_THAT(error(good.substr(0, good.size() / 2)), HasSubstr("mlp"));
  EXPECT_THAT(error(good + "1\n"), HasSubstr("more behind its end"));
  Mlp bad = RandomMlp(7);
  bad.encoding_scale[1] = 0;
  EXPECT_THAT(error(FormatMlp(bad)), HasSubstr("normalisation of the encoding"));
  bad = RandomMlp(7);
  bad.joint_1.weights[3] = std::nanf("");
  EXPECT_THAT(error(FormatMlp(bad)), HasSubstr("joint_1"));
  EXPECT_FALSE(CheckMlp(bad).ok());
  bad = RandomMlp(7);
  bad.joint_1.inputs = 5;
  EXPECT_THAT(std::string(CheckMlp(bad).message()), HasSubstr("joint_1"));
}

TEST(Mlp, DamagedFilesNeverCrash) {
  constexpr uint32_t kSeed = 4711;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const std::string good = FormatMlp(RandomMlp(9));
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int damage = 0; damage < 2; ++damage) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = "0123456789.-en \n"[random() % 16];
      } else {
        text.erase(at, 1 + random() % 10);
      }
    }
    const absl::StatusOr<Mlp> mlp = ParseMlp(text);
    if (mlp.ok()) {
      EXPECT_TRUE(CheckMlp(*mlp).ok());
    }
  }
}

}  // namespace
}  // namespace runnel
