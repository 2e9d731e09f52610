#include "central/display/layer_report.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace runnel::layer_report_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A product at a quarter of the peak, and a pool without operations, whose values are exact.
LayerReport Example() {
  LayerReport report;
  report.title = "net <&>";
  report.kernels = "set";
  report.threads = 2;
  report.peak = 1e11;
  report.layers = {{"conv 3x3", "64-56-64", "direct set", 50'000'000, 1234, 2e-3, 9e-3},
                   {"max_pool", "64-56-64", "loop set", 0, 99, 1e-3, 0}};
  report.errors = {{31.25, 0.999}, {INFINITY, 1}};
  return report;
}

TEST(LayerReport, JsonHasEveryFigure) {
  const json all = json::parse(LayerReportJson(Example()));
  EXPECT_EQ(all["kernels"], "set");
  EXPECT_DOUBLE_EQ(all["peak_gops"], 100);
  EXPECT_DOUBLE_EQ(all["seconds"], 3e-3);
  const json& conv = all["layers"][0];
  EXPECT_EQ(conv["name"], "conv 3x3");
  EXPECT_EQ(conv["bytes"], 1234);
  EXPECT_DOUBLE_EQ(conv["ms"], 2);
  EXPECT_DOUBLE_EQ(conv["fp32_ms"], 9);
  EXPECT_EQ(all["layers"][1]["fp32_ms"], nullptr);
  EXPECT_DOUBLE_EQ(conv["gops"], 50);  // two operations a multiply-accumulate
  EXPECT_DOUBLE_EQ(conv["share_of_peak"], 0.25);
  EXPECT_DOUBLE_EQ(conv["snr_db"], 31.25);
  EXPECT_EQ(all["layers"][1]["snr_db"], nullptr);
  EXPECT_DOUBLE_EQ(all["layers"][1]["cosine"], 1);
}

TEST(LayerReport, MarkdownHasARowANode) {
  const std::string text = LayerReportMarkdown(Example());
  EXPECT_THAT(
      text,
      HasSubstr(
          "| 0 | conv 3x3 | 64-56-64 | direct set | 2.0000 | 9.0000 | 4.5 | 50 | 25 % | 31.2 | "
          "0.99900 | 1234 |\n"));
  EXPECT_THAT(text,
              HasSubstr("| 1 | max_pool | 64-56-64 | loop set | 1.0000 |  |  |  |  | equal | "));
  LayerReport without = Example();
  without.errors.clear();
  EXPECT_THAT(LayerReportMarkdown(without), HasSubstr("| 50 | 25 % |  |  | 1234 |\n"));
}

TEST(LayerReport, SvgHasABarANodeAndNoMarkupOfNames) {
  const std::string text = LayerReportSvg(Example());
  EXPECT_THAT(text, HasSubstr("net &lt;&amp;&gt;"));
  EXPECT_THAT(text, HasSubstr("FP32 takes 4.5 times as long"));
  // 420 for the longest: the dark part is the share of the peak.
  EXPECT_THAT(text, HasSubstr("width=\"420.0\" height=\"12\" fill=\"#9bbcdd\""));
  EXPECT_THAT(text, HasSubstr("width=\"105.0\" height=\"12\" fill=\"#2b5f91\""));
  EXPECT_THAT(text, HasSubstr("width=\"210.0\""));
}

TEST(LayerReport, PathsAreCheckedBeforeTheWork) {
  const std::string folder = testing::TempDir();
  for (const char* end : {".md", ".json", ".svg"}) {
    EXPECT_TRUE(CheckReportPath(folder + "r" + end).ok());
  }
  EXPECT_THAT(std::string(CheckReportPath(folder + "r.txt").message()),
              HasSubstr("ends in .md, .json or .svg"));
  EXPECT_EQ(CheckReportPath(folder + "none/r.svg").code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace runnel::layer_report_test
