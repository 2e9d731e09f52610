#include "predictor/networks/network_file.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
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

TEST(NetworkFile, RefusesWhatIsDamaged) {
  const std::string good = FormatNetwork({"mlp", "any", {Sum(1), Sum(2)}});
  EXPECT_THAT(Refusal(""), HasSubstr("does not begin"));
  EXPECT_THAT(Refusal("runnel-network 2\n"), HasSubstr("does not begin"));
  EXPECT_THAT(Refusal(absl::StrReplaceAll(good, {{"row: mlp\n", ""}})), HasSubstr("'row: ...'"));
  EXPECT_THAT(Refusal(absl::StrReplaceAll(good, {{"members: 2", "members: 0"}})),
              HasSubstr("from 1 to 32"));
  EXPECT_THAT(Refusal(absl::StrReplaceAll(good, {{"members: 2", "members: 99999999999"}})),
              HasSubstr("from 1 to 32"));
  EXPECT_THAT(Refusal(absl::StrReplaceAll(good, {{"members: 2", "members: 3"}})),
              HasSubstr("does not begin with 'runnel-mlp 1'"));
  EXPECT_THAT(Refusal(absl::StrReplaceAll(good, {{"members: 2", "members: 1"}})),
              HasSubstr("more behind its end"));
  EXPECT_THAT(Refusal(good.substr(0, good.size() / 2)), HasSubstr("mlp"));
  EXPECT_THAT(Refusal(absl::StrReplaceAll(good, {{"\n1 1 1 1 1\n", "\n1 4096 4096 1 4096\n"}})),
              HasSubstr("the file ends within"));
  Mlp wide = Sum(1);
  wide.hardware_mean = {0, 0};
  wide.hardware_scale = {1, 1};
  wide.joint_1 = {3, 1, {1, 1, 1}, {0}};
  EXPECT_THAT(Refusal(FormatNetwork({"mlp", "any", {Sum(1), wide}})), HasSubstr("differ"));
  EXPECT_THAT(Refusal(absl::StrReplaceAll(good, {{"\n2 1\n", "\nnan 1\n"}})),
              HasSubstr("no number"));
}

}  // namespace
}  // namespace runnel
