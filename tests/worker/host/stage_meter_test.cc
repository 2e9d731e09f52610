// What a stage's actions add to its telemetry.

#include "worker/host/stage_meter.h"

#include "gtest/gtest.h"

namespace runnel::stage_meter_test {
namespace {

constexpr int64_t kMs = 1'000'000;

class SetClock final : public Clock {
 public:
  int64_t NowNanos() const override {
    ++reads;
    return now_ns;
  }
  int64_t now_ns = 100 * kMs;
  mutable int64_t reads = 0;
};

class StageMeterTest : public ::testing::Test {
 protected:
  void Act(SpanKind kind, int64_t took_ns, const StageMeter::Parts& parts = {}) {
    meter_.BeginAction();
    const int64_t begin_ns = clock_.now_ns;
    clock_.now_ns += took_ns;
    meter_.EndAction(kind, {begin_ns, clock_.now_ns, took_ns}, parts);
  }
  const Telemetry& counts() const { return meter_.counts(); }

  SetClock clock_;
  StageMeter meter_{&clock_, Generation(1), {nullptr, 0, Sequence(0)}};
};

TEST_F(StageMeterTest, EachActionIsOfOneKind) {
  meter_.Resume();
  clock_.now_ns += 5 * kMs;
  Act(SpanKind::kForward, 20 * kMs);
  Act(SpanKind::kInputGradient, 30 * kMs);
  Act(SpanKind::kWeightGradient, 40 * kMs);
  clock_.now_ns += 2 * kMs;
  Act(SpanKind::kStep, kMs);
  EXPECT_EQ(counts().forward_times.sum_ns, 20 * kMs);
  EXPECT_EQ(counts().backward_times.sum_ns, 70 * kMs);
  EXPECT_EQ(counts().backward_times.count(), 2);
  EXPECT_EQ(counts().update_times.sum_ns, kMs);
  EXPECT_EQ(counts().wait_times.sum_ns, 7 * kMs);
  EXPECT_EQ(counts().wait_ns, 7 * kMs);
  EXPECT_EQ(counts().busy_ns, 91 * kMs);
}

TEST_F(StageMeterTest, AnUpdateWithinAnActionIsNoGradient) {
  Act(SpanKind::kWeightGradient, 40 * kMs, {.update_began_ns = clock_.now_ns + 30 * kMs});
  EXPECT_EQ(counts().backward_times.sum_ns, 30 * kMs);
  EXPECT_EQ(counts().update_times.sum_ns, 10 * kMs);
  EXPECT_EQ(counts().forward_times.count(), 0);
}

TEST_F(StageMeterTest, APlainLoopHasAllOfThemInOneAction) {
  Act(SpanKind::kMicroBatch, 100 * kMs, {clock_.now_ns + 30 * kMs, clock_.now_ns + 90 * kMs});
  EXPECT_EQ(counts().forward_times.sum_ns, 30 * kMs);
  EXPECT_EQ(counts().backward_times.sum_ns, 60 * kMs);
  EXPECT_EQ(counts().update_times.sum_ns, 10 * kMs);
  Act(SpanKind::kMicroBatch, 100 * kMs, {clock_.now_ns + 30 * kMs, 0});
  EXPECT_EQ(counts().backward_times.sum_ns, 130 * kMs) << "no step: the rest is gradients";
  EXPECT_EQ(counts().update_times.count(), 1);
}

TEST_F(StageMeterTest, HistogramsReadNoClock) {
  meter_.Resume();
  const int64_t before = clock_.reads;
  meter_.BeginAction();
  EXPECT_EQ(clock_.reads, before + 1) << "for the time that it waited";
  meter_.EndAction(SpanKind::kForward, {1, 2, 1});
  meter_.EndCoding(SpanKind::kEncodeGradient, kMs);
  meter_.EndCoding(SpanKind::kDecodeActivation, 2 * kMs);
  meter_.CountArrival(Direction::kForward, 1000, 1e6);
  EXPECT_EQ(clock_.reads, before + 1);
  EXPECT_EQ(counts().encode_times.sum_ns, kMs);
  EXPECT_EQ(counts().decode_times.sum_ns, 2 * kMs);
  EXPECT_EQ(counts().codec_ns, 3 * kMs);
}

TEST_F(StageMeterTest, AFrameTakesItsBytesOverTheRate) {
  meter_.CountArrival(Direction::kForward, 1000, 0);
  EXPECT_EQ(counts().activation_times.count(), 0) << "the link is not measured yet";
  meter_.CountArrival(Direction::kForward, 1000, 1e6);
  meter_.CountArrival(Direction::kBackward, 3000, 1e6);
  EXPECT_EQ(counts().activation_times.sum_ns, kMs);
  EXPECT_EQ(counts().gradient_times.sum_ns, 3 * kMs);
}

}  // namespace
}  // namespace runnel::stage_meter_test
