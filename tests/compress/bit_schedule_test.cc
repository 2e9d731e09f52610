// Bits by epoch: the paper's schedules and the averages that it reports for them.

#include "compress/bit_schedule.h"

#include "compress/codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/codecs.h"

namespace runnel::bit_schedule_test {
namespace {

using ::testing::HasSubstr;

// The published switch epochs of AccEPT's CNN for activity recognition.
constexpr BitSwitches kHar = {.forward_3_bits = 60, .forward_4_bits = 160, .backward_4_bits = 120};

double MeanBits(const std::vector<BitStep>& steps, int64_t epochs) {
  double sum = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t end = i + 1 < steps.size() ? steps[i + 1].epoch : epochs;
    sum += static_cast<double>((end - steps[i].epoch) * steps[i].bits);
  }
  return sum / static_cast<double>(epochs);
}

// AccEPT 4.3: "the average forward bit width ... 2.48 and 2.9", backward "7.2 and 6.4".
TEST(AcceptBits, AreThePapersSchedules) {
  const BitSchedule mobilenet = AcceptBits({}, 200);
  EXPECT_EQ(BitScheduleText(mobilenet), "2,130:3,175:4/8,160:4");
  EXPECT_DOUBLE_EQ(MeanBits(mobilenet.forward, 200), 2.475);
  EXPECT_DOUBLE_EQ(MeanBits(mobilenet.backward, 200), 7.2);
  const BitSchedule har = AcceptBits(kHar, 200);
  EXPECT_EQ(BitScheduleText(har), "2,60:3,160:4/8,120:4");
  EXPECT_DOUBLE_EQ(MeanBits(har.forward, 200), 2.9);
  EXPECT_DOUBLE_EQ(MeanBits(har.backward, 200), 6.4);
}

TEST(AcceptBits, ScaleWithTheEpochs) {
  EXPECT_EQ(BitScheduleText(AcceptBits(kHar, 20)), "2,6:3,16:4/8,12:4");
  EXPECT_EQ(BitScheduleText(AcceptBits({}, 100)), "2,65:3,88:4/8,80:4");
  EXPECT_EQ(BitScheduleText(AcceptBits(kHar, 3)), "2,1:3,2:4/8,2:4");
  EXPECT_EQ(BitScheduleText(AcceptBits(kHar, 1)), "3/8");  // 0.3 and 0.8 of an epoch
  EXPECT_EQ(BitScheduleText(AcceptBits({}, 1)), "2/8");
}

TEST(BitSchedule, TextsAreReadAndWritten) {
  for (const char* text : {"2/8", "32/8", "2,60:3,160:4/8,120:4", "4,1:2/4"}) {
    const auto schedule = ParseBitSchedule(text, {}, 7);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(BitScheduleText(*schedule), text);
  }
  EXPECT_EQ(BitScheduleText(*ParseBitSchedule("accept", kHar, 20)), "2,6:3,16:4/8,12:4");
  const std::pair<const char*, const char*> kCases[] = {
      {"", "give accept, or FORWARD/BACKWARD"},
      {"2", "'2' is no number of bits"},
      {"2/", "'' is no number"},
      {"2/8/4", "'2/8/4' is no"},
      {"0/8", "'0' is no"},
      {"33/8", "'33' is no"},
      {"2,3/8", "'3' is no"},
      {"2,x:3/8", "'x:3' is no"},
      {"2,5:3,5:4/8", "epoch 5"},
      {"1:2/8", "epoch 1: the first must be 0"},
      {"Accept", "'Accept' is no"},
  };
  for (const auto& [text, error] : kCases) {
    const auto schedule = ParseBitSchedule(text, {}, 7);
    EXPECT_EQ(schedule.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(schedule.status().message()), HasSubstr(error)) << text;
  }
}

TEST(BitSchedule, MakesCodecs) {
  const BitSchedule har = AcceptBits(kHar, 200);
  EXPECT_EQ(CodecsOfBits("mbq", har.forward)->text(), "0:mbq:2,60:mbq:3,160:mbq:4");
  EXPECT_EQ(CodecsOfBits("stochastic", har.backward)->text(), "0:stochastic:8,120:stochastic:4");
  EXPECT_EQ(CodecsOfBits("mbq", {{0, 4}})->text(), "mbq:4");
  EXPECT_THAT(std::string(CodecsOfBits("stochastic", har.forward).status().message()),
              HasSubstr("stochastic:4|8"));
  EXPECT_FALSE(CodecsOfBits("zip", har.forward).ok());
}

TEST(MeanEncodedBytes, WeighsEpochs) {
  const Shape shape = {8, 33};
  const auto bytes = [&shape](const char* codec) {
    return MakeCodec(codec).value()->EncodedBytes(shape).value();
  };
  const auto mean = MeanEncodedBytes(Codecs("0:mbq:2,3:mbq:4,9:identity"), 10);
  ASSERT_TRUE(mean.ok()) << mean.status();
  const int64_t sum = 3 * bytes("mbq:2") + 6 * bytes("mbq:4") + bytes("identity");
  EXPECT_EQ((*mean)(shape).value(), (sum + 9) / 10);
  EXPECT_EQ((*MeanEncodedBytes(Codecs("mbq:3"), 7))(shape).value(), bytes("mbq:3"));
  // What lies behind the run does not count.
  EXPECT_EQ((*MeanEncodedBytes(Codecs("0:mbq:2,5:identity"), 5))(shape).value(), bytes("mbq:2"));
  EXPECT_FALSE(MeanEncodedBytes(Codecs("0:mbq:2,5:zip"), 5).ok());
  // Identity sends halves as they are; any other codec gets them in FP32.
  const auto halves =
      MeanEncodedBytes(Codecs("0:identity,5:mbq:4"), 10, {.activation = DType::kFloat16});
  EXPECT_EQ((*halves)(shape).value(), (2 * shape.elements() + bytes("mbq:4")) / 2);
}

}  // namespace
}  // namespace runnel::bit_schedule_test
