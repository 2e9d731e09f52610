#include "proto/base/codec_schedule.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

TEST(CodecSchedule, TextsAreReadAndWritten) {
  using Steps = std::vector<CodecStep>;
  const std::pair<const char*, Steps> kCases[] = {
      {"identity", {{0, "identity"}}},
      {"mbq:2", {{0, "mbq:2"}}},
      {"0:mbq:2,60:mbq:3,160:identity", {{0, "mbq:2"}, {60, "mbq:3"}, {160, "identity"}}},
  };
  for (const auto& [text, steps] : kCases) {
    const auto read = ParseCodecSchedule(text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == steps) << text;
    EXPECT_EQ(CodecScheduleText(steps), text);
  }
  EXPECT_EQ(CodecScheduleText(*ParseCodecSchedule("mbq:2,5:mbq:3")), "0:mbq:2,5:mbq:3");
  EXPECT_EQ(CodecScheduleText(*ParseCodecSchedule("0:mbq:2,5:mbq:2,9:mbq:2")), "mbq:2");
  EXPECT_EQ(CodecScheduleText(*ParseCodecSchedule("0:a,5:a,9:b,12:b,13:a")), "0:a,9:b,13:a");
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
  };
  for (const auto& [text, error] : kCases) {
    const auto read = ParseCodecSchedule(text);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(error)) << text;
  }
  EXPECT_FALSE(ParseCodecSchedule("a" + std::string(kMaxCodecScheduleBytes, 'a')).ok());
}

TEST(CodecSchedule, AnEpochHasTheStepBefore) {
  const auto steps = *ParseCodecSchedule("0:mbq:2,2:mbq:3,5:mbq:4");
  const size_t expected[] = {0, 0, 1, 1, 1, 2, 2};
  for (int64_t epoch = 0; epoch < 7; ++epoch)
    EXPECT_EQ(StepInEpoch(steps, epoch), expected[epoch]) << epoch;
}

}  // namespace
}  // namespace runnel
