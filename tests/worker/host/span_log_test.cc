#include "worker/host/span_log.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::span_log_test {
namespace {

TEST(SpanLog, KeepsWhatOverlapsTheWindow) {
  SpanLog log;
  log.Add({SpanKind::kForward, 1, 10, 5});
  EXPECT_FALSE(log.is_over(1'000)) << "none was opened";
  log.Open(100, {50, 7});
  log.Add({SpanKind::kForward, 2, 90, 10});        // ended as the window began
  log.Add({SpanKind::kForward, 3, 95, 10});        // reaches into it
  log.Add({SpanKind::kInputGradient, 4, 149, 9});  // out of it
  log.Add({SpanKind::kStep, 5, 150, 9});           // behind it
  EXPECT_FALSE(log.is_over(149));
  EXPECT_TRUE(log.is_over(150));
  const TraceReport report = log.Close();
  EXPECT_EQ(report.id, 7);
  ASSERT_EQ(report.spans.size(), 2u);
  EXPECT_EQ(report.spans[0].micro_batch, 3);
  EXPECT_EQ(report.spans[1].micro_batch, 4);
  EXPECT_FALSE(log.is_over(1'000'000));
  log.Add({SpanKind::kForward, 6, 120, 1});
  log.Open(200, {10, 8});
  EXPECT_TRUE(log.Close().spans.empty());
}

TEST(SpanLog, HasAnEnd) {
  SpanLog log;
  log.Open(0, {kMaxTraceNs, 1});
  for (int64_t i = 0; i < kMaxSpans + 3; ++i) log.Add({SpanKind::kForward, i, i, 1});
  const TraceReport report = log.Close();
  EXPECT_EQ(static_cast<int64_t>(report.spans.size()), kMaxSpans);
  EXPECT_EQ(report.left_out, 3);
}

}  // namespace
}  // namespace runnel::span_log_test
