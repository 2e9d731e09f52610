#include "central/display/metric_text.h"

#include <limits>

#include "gtest/gtest.h"

namespace runnel::metric_text_test {
namespace {

constexpr Metric kShare = {"runnel_stage_busy_ratio", "Share of time at work.", "stage"};

TEST(MetricText, AFamilyStandsTogetherUnderItsHead) {
  MetricText text;
  text.Add(kShare, {"0"}, 0.1);
  text.Add({"runnel_samples_total", "Samples."}, {}, 12345678);
  text.Add(kShare, {"1"}, 0.75);
  EXPECT_EQ(text.Text(),
            "# HELP runnel_stage_busy_ratio Share of time at work.\n"
            "# TYPE runnel_stage_busy_ratio gauge\n"
            "runnel_stage_busy_ratio{stage=\"0\"} 0.1\n"
            "runnel_stage_busy_ratio{stage=\"1\"} 0.75\n"
            "# HELP runnel_samples_total Samples.\n"
            "# TYPE runnel_samples_total counter\n"
            "runnel_samples_total 12345678\n");
}

TEST(MetricText, BucketsOfAHistogramHoldAllBelowTheirBound) {
  Histogram histogram;
  histogram.Add(200'000);
  histogram.Add(20'000'000);
  histogram.Add(20'000'000);
  histogram.Add(4'000'000'000);
  MetricText text;
  text.Add({"runnel_stage_forward_seconds", "Seconds of each forward.", "stage"}, {"0"}, histogram);
  EXPECT_EQ(text.Text(),
            "# HELP runnel_stage_forward_seconds Seconds of each forward.\n"
            "# TYPE runnel_stage_forward_seconds histogram\n"
            "runnel_stage_forward_seconds_bucket{stage=\"0\",le=\"0.0003\"} 1\n"
            "runnel_stage_forward_seconds_bucket{stage=\"0\",le=\"0.001\"} 1\n"
            "runnel_stage_forward_seconds_bucket{stage=\"0\",le=\"0.003\"} 1\n"
            "runnel_stage_forward_seconds_bucket{stage=\"0\",le=\"0.01\"} 1\n"
            "runnel_stage_forward_seconds_bucket{stage=\"0\",le=\"0.03\"} 3\n"
            "runnel_stage_forward_seconds_bucket{stage=\"0\",le=\"0.1\"} 3\n"
            "runnel_stage_forward_seconds_bucket{stage=\"0\",le=\"0.3\"} 3\n"
            "runnel_stage_forward_seconds_bucket{stage=\"0\",le=\"1\"} 3\n"
            "runnel_stage_forward_seconds_bucket{stage=\"0\",le=\"3\"} 3\n"
            "runnel_stage_forward_seconds_bucket{stage=\"0\",le=\"+Inf\"} 4\n"
            "runnel_stage_forward_seconds_sum{stage=\"0\"} 4.0402\n"
            "runnel_stage_forward_seconds_count{stage=\"0\"} 4\n");
}

TEST(MetricText, LabelValuesAreEscaped) {
  MetricText text;
  text.Add({"runnel_up", "Up.", "a,b"}, {"a\"b\\c\nd", ""}, 1);
  EXPECT_NE(text.Text().find("runnel_up{a=\"a\\\"b\\\\c\\nd\",b=\"\"} 1\n"), std::string::npos)
      << text.Text();
}

TEST(MetricText, WhatIsNotKnownIsLeftOut) {
  MetricText text;
  text.Add(kShare, {"0"}, std::numeric_limits<double>::quiet_NaN());
  text.Add(kShare, {"0"}, std::numeric_limits<double>::infinity());
  EXPECT_EQ(text.Text(), "");
}

}  // namespace
}  // namespace runnel::metric_text_test
