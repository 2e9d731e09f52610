#include "predictor/networks/network_file.h"

#include <cmath>
#include <random>
#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::network_file_test {
namespace {

using ::testing::HasSubstr;

// One unit a layer: a sample of {x}, {h} gives offset + x + h for positive ones.
Mlp Sum(float offset) {
  Mlp mlp;
  mlp.encoding_mean = mlp.hardware_mean = {0};
  mlp.encoding_scale = mlp.hardware_scale = {1};
  mlp.output_mean = offset;
  mlp.encoding_1 = mlp.encoding_2 = {1, 1, {1}, {0}};
  mlp.joint_1 = {2, 1, {1, 1}, {0}};
  mlp.joint_2 = {1, 1, {1}, {0}};
  return mlp;
}

std::string Refusal(const std::string& text) {
  return std::string(ParseNetwork(text).status().message());
}

TEST(NetworkFile, ComesBackAndSaysTheMean) {
  const PredictorNetwork network{"mlp", "any", {Sum(1), Sum(2), Sum(6)}};
  const absl::StatusOr<PredictorNetwork> read = ParseNetwork(FormatNetwork(network));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, network);
  EXPECT_DOUBLE_EQ(read->Evaluate({2}, {1}), 6);
  // Beyond five scales an input counts as five.
  EXPECT_DOUBLE_EQ(read->Evaluate({200}, {1}), 9);
}

// Floats of any digits come back bit for bit.
TEST(NetworkFile, NumbersAreReadBackExactly) {
  constexpr uint32_t kSeed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal(0, 0.5f);
  PredictorNetwork network{"mlp", "any", {Sum(1)}};
  LinearLayer& layer = network.members[0].encoding_1;
  layer = {1, 500, {}, {}};
  for (int i = 0; i < layer.outputs; ++i) {
    layer.weights.push_back(normal(random));
    layer.bias.push_back(std::ldexp(normal(random), -100));
  }
  network.members[0].encoding_2 = {500, 1, layer.weights, {0}};
  const absl::StatusOr<PredictorNetwork> read = ParseNetwork(FormatNetwork(network));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, network);
}

TEST(NetworkFile, RefusesWhatIsDamaged) {
  const std::string good = FormatNetwork({"mlp", "any", {Sum(1), Sum(2)}});
  const auto refusal_of = [&good](const std::string& from, const std::string& to) {
    const std::string text = absl::StrReplaceAll(good, {{from, to}});
    EXPECT_NE(text, good) << from;
    return Refusal(text);
  };
  EXPECT_THAT(Refusal(""), HasSubstr("JSON"));
  EXPECT_THAT(Refusal("runnel-network 1\nrow: mlp\n"), HasSubstr("is of version 1"));
  EXPECT_THAT(refusal_of("\"version\": 3", "\"version\": 2"),
              HasSubstr("is runnel-network 2, this program reads runnel-network 3"));
  EXPECT_THAT(refusal_of(" \"row\": \"mlp\",\n", ""), HasSubstr("'row' is missing"));
  EXPECT_THAT(refusal_of("\"row\": \"mlp\"", "\"row\": \"\""),
              HasSubstr("row and model must have"));
  EXPECT_THAT(refusal_of("\"bias\":[0.0]", "\"bias\":[]"), HasSubstr("do not make 0 rows"));
  EXPECT_THAT(refusal_of("\"bias\":[0.0]", "\"bias\":[0,1]"), HasSubstr("do not make 2 rows"));
  EXPECT_THAT(refusal_of("\"bias\":[0.0]", "\"bias\":[\"x\"]"), HasSubstr("an array of numbers"));
  EXPECT_THAT(refusal_of("\"output\":[2.0,1.0]", "\"output\":[2]"),
              HasSubstr("a mean and a scale"));
  EXPECT_THAT(refusal_of("\"output\":[2.0,1.0]", "\"output\":[1e300,1]"),
              HasSubstr("normalisation"));
  EXPECT_THAT(Refusal(good.substr(0, good.size() / 2)), HasSubstr("JSON"));
  EXPECT_THAT(Refusal(FormatNetwork({"mlp", "any", {}})), HasSubstr("1 to 32 members"));
  Mlp wide = Sum(1);
  wide.hardware_mean = {0, 0};
  wide.hardware_scale = {1, 1};
  wide.joint_1 = {3, 1, {1, 1, 1}, {0}};
  EXPECT_THAT(Refusal(FormatNetwork({"mlp", "any", {Sum(1), wide}})), HasSubstr("differ"));
}

TEST(NetworkFile, DamagedFilesNeverCrash) {
  constexpr uint32_t kSeed = 4711;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const std::string good = FormatNetwork({"mlp", "any", {Sum(1), Sum(2)}});
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    const size_t at = random() % text.size();
    if (random() % 2 == 0) {
      text[at] = "0123456789.-en \n"[random() % 16];
    } else {
      text.erase(at, 1 + random() % 10);
    }
    const absl::StatusOr<PredictorNetwork> network = ParseNetwork(text);
    if (!network.ok()) continue;
    ++accepted;
    for (const Mlp& member : network->members) EXPECT_TRUE(CheckMlp(member).ok());
  }
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace runnel::network_file_test
