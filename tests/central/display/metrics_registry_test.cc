#include "central/display/metrics_registry.h"

#include <limits>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsRegistry, TextExposition) {
  MetricsRegistry metrics;
  metrics.Describe("runnel_stage_busy_share", "Share of time at work.");
  metrics.SetGauge("runnel_stage_busy_share", {{"stage", "0"}}, 0.25);
  metrics.SetGauge("runnel_stage_busy_share", {{"stage", "0"}}, 0.5);
  metrics.SetGauge("runnel_stage_busy_share", {{"stage", "1"}}, 0.75);
  metrics.AddCounter("runnel_samples_total", {}, 64);
  metrics.AddCounter("runnel_samples_total", {}, 32);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("# HELP runnel_stage_busy_share Share of time at work.\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE runnel_stage_busy_share gauge\n"));
  EXPECT_THAT(text, HasSubstr("runnel_stage_busy_share{stage=\"0\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("runnel_stage_busy_share{stage=\"1\"} 0.75\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE runnel_samples_total counter\n"));
  EXPECT_THAT(text, HasSubstr("runnel_samples_total 96\n"));
  EXPECT_THAT(text, HasSubstr("runnel_metrics_rejected_total 0\n"));
}

TEST(MetricsRegistry, LabelValuesAreEscaped) {
  MetricsRegistry metrics;
  metrics.SetGauge("runnel_up", {{"device", "a\"b\\c\nd"}}, 1);
  EXPECT_THAT(metrics.Text(), HasSubstr("runnel_up{device=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

TEST(MetricsRegistry, BadValuesAreDroppedAndCounted) {
  MetricsRegistry metrics;
  metrics.AddCounter("runnel_ok_total", {}, 1);
  metrics.AddCounter("runnel_ok_total", {}, -1);
  metrics.AddCounter("runnel_ok_total", {}, std::numeric_limits<double>::quiet_NaN());
  metrics.AddCounter("not a name", {}, 1);
  metrics.SetGauge("", {}, 1);
  metrics.SetGauge("runnel_ok_total", {}, 1);  // is a counter
  metrics.SetGauge("runnel_g", {{"bad-label", ""}}, 1);
  metrics.SetGauge("runnel_g", {{"a", "1"}, {"a", "2"}}, 1);
  metrics.SetGauge("runnel_h", {}, 1);
  metrics.AddCounter("runnel_h", {}, 1);  // is a gauge
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("runnel_ok_total 1\n"));
  EXPECT_THAT(text, HasSubstr("runnel_metrics_rejected_total 8\n"));
  EXPECT_THAT(text, Not(HasSubstr("not a name")));
}

TEST(MetricsRegistry, AnyThread) {
  MetricsRegistry metrics;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics] {
      for (int i = 0; i < 1000; ++i) {
        metrics.AddCounter("runnel_total", {{"k", "v"}}, 1);
        if (i % 100 == 0) metrics.Text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(metrics.Text(), HasSubstr("runnel_total{k=\"v\"} 4000\n"));
}

}  // namespace
}  // namespace runnel
