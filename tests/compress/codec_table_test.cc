// The table of codecs, and the sizes that AccEPT's table 3 promises.

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "compress/codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/tensor/encoded_bytes.h"
#include "proto/base/training/recipe_family.h"

namespace runnel::codec_table_test {
namespace {

using testing::HasSubstr;

TEST(CodecTable, NamesAreExactlyWhatMakeCodecAccepts) {
  const std::vector<std::string> names = ExampleCodecNames();
  const std::set<std::string> listed(names.begin(), names.end());
  EXPECT_EQ(listed.size(), names.size());
  for (const CodecRow& row : BuiltinCodecs()) {
    const std::string bare(row.family);
    EXPECT_EQ(MakeCodec(bare).ok(), row.parameter.Contains(std::nullopt)) << bare;
    for (int parameter = -1; parameter <= 100; ++parameter) {
      const std::string name = CodecId{bare, parameter}.text();
      EXPECT_EQ(MakeCodec(name).ok(), row.parameter.Contains(parameter)) << name;
    }
  }
  for (const std::string& name : names) {
    const auto codec = MakeCodec(name);
    ASSERT_TRUE(codec.ok()) << codec.status();
    EXPECT_EQ((*codec)->name(), name);
  }
}

TEST(CodecTable, RefusesOtherNames) {
  for (const char* name : {"", ":", "mbq", "mbq:", "mbq:02", "mbq:+2", "mbq:2 ", "mbq:2:3", "MBQ:2",
                           "identity:", "identity:1", "int8:8", "stochastic:", "stochastic:48",
                           "mx:4", "mx:fp", "mx:fp5", "mx:int8", "zip:1"}) {
    const auto codec = MakeCodec(name);
    ASSERT_FALSE(codec.ok()) << name;
    EXPECT_EQ(codec.status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_THAT(std::string(MakeCodec("zip").status().message()), HasSubstr("mbq:2"));
  EXPECT_THAT(std::string(MakeCodec("mbq:9").status().message()), HasSubstr("2..8"));
}

TEST(CodecTable, SaysForWhichTensorsACodecIs) {
  const NumberFormat floats, integers = ParseRecipeName("niti")->family->format;
  const auto refusal = [](absl::string_view codec, const NumberFormat& format,
                          Direction direction) {
    const absl::Status status = CheckCodecFits(CodecId::Parse(codec).value(), format, direction);
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  for (const CodecId& codec : ExampleCodecs()) {
    const CodecRow& row = **FindCodec(codec);
    for (const NumberFormat& format : {floats, integers}) {
      const bool is_integer = format.integer_boundaries();
      EXPECT_EQ(refusal(codec.text(), format, Direction::kForward).empty(),
                !row.feeds_back && !(is_integer && (row.learns || row.floats_only)))
          << codec.text();
      EXPECT_EQ(refusal(codec.text(), format, Direction::kBackward).empty(),
                !row.learns && !row.keeps_samples && !(is_integer && row.floats_only))
          << codec.text();
    }
  }
  EXPECT_THAT(refusal("uniform:4", floats, Direction::kBackward),
              HasSubstr("learns from the gradi"));
  EXPECT_THAT(refusal("hadamard_ef:2", floats, Direction::kForward),
              HasSubstr("it is for --codec-backward; forward take hadamard or eden"));
  EXPECT_THAT(refusal("topk:0.1", integers, Direction::kForward), HasSubstr("--codec-backward"));
  EXPECT_THAT(refusal("aqsgd:2", floats, Direction::kBackward),
              HasSubstr("it is for --codec-forward; take hadamard or eden for --codec-backward"));
  EXPECT_THAT(refusal("zip:1", floats, Direction::kForward), HasSubstr("is not among"));
}

double FramedRatio(const std::string& codec, const Shape& shape) {
  const int64_t payload = MakeCodec(codec).value()->EncodedBytes(shape).value();
  return 4.0 * static_cast<double>(shape.elements()) /
         static_cast<double>(payload + kFrameHeaderBytes);
}

TEST(CodecSizes, TwoBitsAreSixteenTimesSmallerWithTheFrameHeader) {
  const Shape small = {128, 160, 1, 1};
  ASSERT_EQ(4 * small.elements(), 81920);
  EXPECT_GE(FramedRatio("mbq:2", small), 15.7);
  EXPECT_GE(FramedRatio("mbq:2", {128, 32, 16, 16}), 15.9);
}

TEST(CodecSizes, Formulas) {
  const auto bytes = [](const std::string& name, const Shape& shape) {
    return MakeCodec(name).value()->EncodedBytes(shape).value();
  };
  EXPECT_EQ(bytes("mbq:2", {11}), 4 * 3 + 2 * 2);
  EXPECT_EQ(bytes("mbq:3", {8, 4, 2, 2}), 4 * 4 + 3 * 16);
  EXPECT_EQ(bytes("stochastic:8", {11}), 4 + 11);
  EXPECT_EQ(bytes("stochastic:4", {11}), 4 + 6);
  EXPECT_EQ(bytes("identity", {11}), 44);
  EXPECT_EQ(bytes("int8", {11}), 4 + 11);
  // The largest tensor that there may be.
  EXPECT_EQ(bytes("mbq:8", {Shape::kMaxElements}), 4 * 9 + Shape::kMaxElements);
}

}  // namespace
}  // namespace runnel::codec_table_test
