#include "central/reports/codec_report.h"

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
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

// Made once: each codec meets the paper's largest tensors.
const std::vector<CodecReport>& Reports() {
  static const auto* const kReports = [] {
    CodecReportOptions options;
    options.codecs = {"identity",   "mbq:2",      "mbq:3",       "mbq:4",
                      "hadamard:2", "hadamard:4", "stochastic:4"};
    options.repetitions = 1;
    auto reports = ReportCodecs(options, CountingClock());
    EXPECT_TRUE(reports.ok()) << reports.status();
    return new std::vector<CodecReport>(*std::move(reports));
  }();
  return *kReports;
}

const CodecReport& ReportOf(absl::string_view codec) {
  return *absl::c_find_if(Reports(), [&](const CodecReport& one) { return one.codec == codec; });
}

// Our frames are never larger than the paper's, and not smaller than their bits.
TEST(CodecReport, SizesStandBesideThePapers) {
  const std::pair<const char*, double> kBits[] = {
      {"identity", 32}, {"mbq:2", 2}, {"mbq:3", 3}, {"mbq:4", 4}, {"stochastic:4", 4}};
  for (const auto& [codec, bits] : kBits) {
    const CodecReport& report = ReportOf(codec);
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
  const CodecReport& identity = ReportOf("identity");
  EXPECT_EQ(identity.activation.mean_square, 0);
  EXPECT_EQ(identity.gradient.gain, 1);
  EXPECT_LT(ReportOf("hadamard:4").activation.mean_square,
            0.3 * ReportOf("hadamard:2").activation.mean_square);
  for (const char* const unbiased : {"identity", "hadamard:2", "hadamard:4", "stochastic:4"}) {
    const CodecReport& report = ReportOf(unbiased);
    EXPECT_NEAR(report.gradient.mean_error, 0, 0.01) << report.codec;
    EXPECT_NEAR(report.gradient.gain, 1, 0.02) << report.codec;
  }
  // Twice 4 MiB, a millisecond each way.
  EXPECT_NEAR(identity.encode_gb_per_s, 4.194304, 1e-6);
}

TEST(CodecReport, SaysItInJson) {
  const auto json = ParseJson(CodecReportJson({ReportOf("identity"), ReportOf("mbq:2")}));
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
