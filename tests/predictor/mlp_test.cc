#include "predictor/networks/mlp.h"

#include <cmath>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/predictor/random_network.h"

namespace runnel::mlp_test {
namespace {

using ::testing::HasSubstr;

Mlp RandomMlp(uint32_t seed) {
  std::mt19937 random(seed);
  Mlp mlp;
  mlp.encoding_mean = {1, 2, 3};
  mlp.encoding_scale = {1, 0.5f, 2};
  mlp.hardware_mean = {-1, -2};
  mlp.hardware_scale = {0.25f, 3};
  mlp.output_mean = -4;
  mlp.output_scale = 1.5f;
  mlp.encoding_1 = RandomLayer(3, 5, random);
  mlp.encoding_2 = RandomLayer(5, 4, random);
  mlp.joint_1 = RandomLayer(6, 7, random);
  mlp.joint_2 = RandomLayer(7, 1, random);
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

TEST(Mlp, SaysWhatIsWrong) {
  const auto error = [](const Mlp& mlp) { return std::string(CheckMlp(mlp).message()); };
  EXPECT_EQ(error(RandomMlp(7)), "");
  Mlp bad = RandomMlp(7);
  bad.encoding_scale[1] = 0;
  EXPECT_THAT(error(bad), HasSubstr("normalisation of the encoding"));
  bad = RandomMlp(7);
  bad.joint_1.weights[3] = std::nanf("");
  EXPECT_THAT(error(bad), HasSubstr("joint_1"));
  bad = RandomMlp(7);
  bad.joint_1.inputs = 5;
  EXPECT_THAT(error(bad), HasSubstr("joint_1"));
}

}  // namespace
}  // namespace runnel::mlp_test
