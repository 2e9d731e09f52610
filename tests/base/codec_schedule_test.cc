#include "proto/base/training/codecs/codec_schedule.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/codecs.h"

namespace runnel::codec_schedule_test {
namespace {

using ::testing::HasSubstr;

TEST(CodecSchedule, TextsAreReadAndWritten) {
  using Steps = std::vector<CodecStep>;
  const std::pair<const char*, Steps> kCases[] = {
      {"identity", {{0, OneCodec("identity")}}},
      {"mbq:2", {{0, OneCodec("mbq:2")}}},
      {"0:mbq:2,60:mbq:3,160:identity",
       {{0, OneCodec("mbq:2")}, {60, OneCodec("mbq:3")}, {160, OneCodec("identity")}}},
  };
  for (const auto& [text, steps] : kCases) {
    const auto read = CodecSchedule::Parse(text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->steps() == steps) << text;
    EXPECT_EQ(CodecSchedule(steps).text(), text);
  }
  EXPECT_EQ(Codecs("mbq:2,5:mbq:3").text(), "0:mbq:2,5:mbq:3");
  EXPECT_EQ(Codecs("0:mbq:2,5:mbq:2,9:mbq:2").text(), "mbq:2");
  EXPECT_EQ(Codecs("0:a,5:a,9:b,12:b,13:a").text(), "0:a,9:b,13:a");
}

TEST(CodecSchedule, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "a codec is missing"},
      {"0:", "a codec is missing"},
      {"mbq:2,", "'' needs its epoch"},
      {"mbq:2,mbq:3", "'mbq:3' needs its epoch"},
      {"4", "'4' is no codec"},
      {"-:mbq:2", "'-:mbq:2' is no codec"},
      {"99999999999999999999:mbq:2", "is no codec"},
      {"1:mbq:2", "epoch 1: the first must be 0"},
      {"-1:mbq:2", "epoch -1: the first must be 0"},
      {"0:mbq:2,0:mbq:3", "epoch 0"},
      {"0:mbq:2,5:mbq:3,4:mbq:4", "epoch 4"},
      {"mbq:02", "should be written 2"},
      {"topk:.1", "should be written 0.1"},
      {"topk:0.12345678", "should be written 0.123457"},
      {"mbq:two", "\"two\" is no number"},
      {"mbq:2\n", "\"2\\n\""},
      {"mbq\n", "\"mbq\\n\" should be"},
      {"mbq:nan", "no number"},
      {"mx:fp", "\"fp\" is no number"},
      {"mx:fp08", "should be written 8"},
      {"mbq:2:3", "no number"},
      {"MBQ:2", "should be FAMILY"},
  };
  for (const auto& [text, error] : kCases) {
    const auto read = CodecSchedule::Parse(text);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(error)) << text;
  }
  EXPECT_FALSE(CodecSchedule::Parse("a" + std::string(CodecSchedule::kMaxTextBytes, 'a')).ok());
}

TEST(CodecSchedule, AnEpochHasTheStepBefore) {
  const CodecSchedule codecs = Codecs("0:mbq:2,2:mbq:3,5:mbq:4");
  const size_t expected[] = {0, 0, 1, 1, 1, 2, 2};
  for (int64_t epoch = 0; epoch < 7; ++epoch)
    EXPECT_EQ(codecs.StepIn(epoch), expected[epoch]) << epoch;
}

TEST(CodecSchedule, EpochsOfASteps) {
  const CodecSchedule codecs = Codecs("0:mbq:2,2:mbq:3,5:mbq:4");
  const int64_t expected[] = {2, 2, 0};
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(codecs.EpochsOf(i, 4), expected[i]) << i;
}

TEST(CodecSchedule, ACodecIsReplacedInAllEpochs) {
  const CodecSchedule codecs = Codecs("0:identity,2:mbq:3,5:identity");
  EXPECT_EQ(codecs.Replaced(CodecId::Identity(), OneCodec("int8")).text(), "0:int8,2:mbq:3,5:int8");
  EXPECT_EQ(codecs.Replaced(OneCodec("mbq:3"), CodecId::Identity()), CodecSchedule());
  EXPECT_TRUE(CodecSchedule().is_identity());
  EXPECT_FALSE(codecs.is_identity());
}

TEST(CodecFamily, AParameterIsCheckedAgainstItsRange) {
  using Kind = ParameterRange::Kind;
  const std::vector<CodecFamily> families = {{"identity", {}},
                                             {"mbq", {Kind::kInteger, 2, 8}},
                                             {"stochastic", {Kind::kInteger, 4, 8, 4}},
                                             {"mx:fp", {Kind::kInteger, 4, 8, 2}},
                                             {"topk", {Kind::kRatio, 0.001, 1}}};
  for (const char* codec : {"identity", "mbq:2", "mbq:8", "stochastic:4", "stochastic:8", "mx:fp6",
                            "topk:0.001", "topk:0.0317", "topk:1"}) {
    EXPECT_TRUE(CheckHasCodec(families, OneCodec(codec)).ok()) << codec;
    EXPECT_EQ(OneCodec(codec).text(), codec);
  }
  for (const char* codec :
       {"identity:1", "mbq", "mbq:1", "mbq:2.5", "mbq:9", "stochastic:6", "mx:6", "mx:fp7",
        "mx:int8", "topk", "topk:0", "topk:-1", "topk:1.5", "zip"}) {
    const absl::Status status = CheckHasCodec(families, OneCodec(codec));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << codec;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("identity, mbq:2..8, stochastic:4|8, mx:fp4|6|8, topk:0.001..1"));
  }
}

}  // namespace
}  // namespace runnel::codec_schedule_test
