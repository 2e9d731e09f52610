#include "central/reports/codec_report.h"

#include "compress/codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/json/json_fields.h"

namespace runnel::codec_report_test {
namespace {

// Each look takes a millisecond.
class CountingClock final : public Clock {
 public:
  int64_t NowNanos() const override { return now_ns_ += 1'000'000; }

 private:
  mutable int64_t now_ns_ = 0;
};

std::vector<CodecReport> Report(std::vector<std::string> codecs) {
  CodecReportOptions options;
  options.codecs = std::move(codecs);
  options.repetitions = 1;
  auto reports = ReportCodecs(options, CountingClock());
  EXPECT_TRUE(reports.ok()) << reports.status();
  return *std::move(reports);
}

// Our frames are never larger than the paper's, and not smaller than their bits.
TEST(CodecReport, SizesStandBesideThePapers) {
  const std::pair<const char*, double> kBits[] = {
      {"identity", 32}, {"mbq:2", 2}, {"mbq:3", 3}, {"mbq:4", 4}, {"stochastic:4", 4}};
  for (const auto& [codec, bits] : kBits) {
    const CodecReport report = Report({codec}).front();
    ASSERT_EQ(report.frame_bytes.size(), 4u);
    for (size_t t = 0; t < 4; ++t) {
      const double kilobytes = static_cast<double>(report.frame_bytes[t]) / 1024;
      const double elements = static_cast<double>(LatentTensors()[t].shape.elements());
      EXPECT_GT(PaperKilobytes(codec, t), 0);
      // The paper rounds to four figures and leaves headers out of its largest sizes.
      EXPECT_LE(kilobytes, PaperKilobytes(codec, t) + 0.07) << codec << ", " << t;
      EXPECT_GT(kilobytes, elements * bits / 8 / 1024) << codec << ", " << t;
    }
  }
  EXPECT_EQ(PaperKilobytes("hadamard:2", 0), 0);
}

TEST(CodecReport, LossesAreThoseOfTheTensors) {
  const auto reports = Report({"identity", "hadamard:2", "hadamard:4", "stochastic:4"});
  EXPECT_EQ(reports[0].activation.mean_square, 0);
  EXPECT_EQ(reports[0].gradient.gain, 1);
  EXPECT_LT(reports[2].activation.mean_square, 0.3 * reports[1].activation.mean_square);
  for (const CodecReport& report : reports) {
    EXPECT_NEAR(report.gradient.mean_error, 0, 0.01) << report.codec;
    EXPECT_NEAR(report.gradient.gain, 1, 0.02) << report.codec;
  }
  // Twice 4 MiB, a millisecond each way.
  EXPECT_NEAR(reports[0].encode_gb_per_s, 4.194304, 1e-6);
}

TEST(CodecReport, SaysItInJson) {
  const auto json = ParseJson(CodecReportJson(Report({"identity", "mbq:2"})));
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["tensors"].size(), 4u);
  EXPECT_EQ((*json)["codecs"][1]["codec"], "mbq:2");
  EXPECT_EQ((*json)["codecs"][1]["frame_bytes"][0], 64 + 12 + 2 * 131072);
  EXPECT_EQ((*json)["codecs"][1]["paper_kb"][0], 257.1);
  // 4 MiB and a header at 1 Mbps.
  EXPECT_NEAR((*json)["figure_9"]["codecs"]["identity"]["largest_ms"][0].get<double>(),
              (4194304 + 64) * 8 / 1e3, 1e-6);
}

TEST(CodecReport, UnknownCodecsAreRefused) {
  CodecReportOptions options;
  options.codecs = {"zip"};
  EXPECT_FALSE(ReportCodecs(options, CountingClock()).ok());
}

}  // namespace
}  // namespace runnel::codec_report_test
