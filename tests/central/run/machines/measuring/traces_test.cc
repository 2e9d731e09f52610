// Windows in which all devices note what they do, and whose clocks are put on central's.

#include "central/run/machines/measuring/traces.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::traces_test {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMs = 1'000'000;

Heartbeat HeartbeatAt(int64_t clock_ns, int64_t arrived_ns) {
  Heartbeat heartbeat;
  heartbeat.clock_ns = clock_ns;
  heartbeat.arrived_ns = arrived_ns;
  return heartbeat;
}

class TracesTest : public ::testing::Test {
 protected:
  // Three layers on w2, the others on w0; w1 has none.
  TracesTest() : roster_(FullRoster(3)), active_(ActiveFor(PlanOf({2, 0}, {2, 5}))) {}

  absl::Status Begin(int64_t now_ns) {
    return traces_.Begin(now_ns, 100 * kMs, /*step=*/7, active_, roster_, effects_);
  }
  void Answer(int device, std::vector<Span> spans = {}, int64_t id = 1) {
    traces_.Add(device, ConnectionId(device), {std::move(spans), 0, id});
  }
  bool IsThere(int64_t now_ns) const { return traces_.Take(now_ns).value().has_value(); }

  Roster roster_;
  ActivePlan active_;
  RunEffects effects_;
  Traces traces_;
};

TEST_F(TracesTest, AllAreAskedAndTheirLayersNoted) {
  EXPECT_TRUE(absl::IsNotFound(traces_.Take(0).status()));
  ASSERT_TRUE(Begin(1000).ok());
  EXPECT_THAT(ReceiversOf<TraceRequest>(effects_), ElementsAre(0, 1, 2));
  EXPECT_EQ(MessagesOf<TraceRequest>(effects_)[0].second.window_ns, 100 * kMs);
  EXPECT_TRUE(absl::IsFailedPrecondition(Begin(2000))) << "one at a time";
  for (int device : {0, 1, 2}) {
    EXPECT_FALSE(IsThere(150 * kMs));
    Answer(device);
  }
  const RunTrace trace = *traces_.Take(150 * kMs).value();
  EXPECT_EQ(trace.step, 7);
  ASSERT_EQ(trace.devices.size(), 3u);
  EXPECT_EQ(trace.devices[0].stage, 1);
  EXPECT_EQ(trace.devices[0].first_layer, 3);
  EXPECT_EQ(trace.devices[1].stage, std::nullopt);
  EXPECT_EQ(trace.devices[2].last_layer, 2);
  ASSERT_TRUE(Begin(151 * kMs).ok()) << "the next one";
  for (int device : {0, 1}) Answer(device, {}, 2);
  Answer(2, {}, 1);
  EXPECT_FALSE(IsThere(200 * kMs)) << "an answer to the first one that was held up";
  Answer(2, {}, 2);
  EXPECT_TRUE(IsThere(200 * kMs));
}

TEST_F(TracesTest, WhoDoesNotAnswerIsNotWaitedForForEver) {
  ASSERT_TRUE(Begin(0).ok());
  Answer(0);
  Answer(1);
  EXPECT_FALSE(IsThere(100 * kMs + Traces::kGraceNs - 1));
  ASSERT_TRUE(IsThere(100 * kMs + Traces::kGraceNs));
  const RunTrace trace = *traces_.Take(100 * kMs + Traces::kGraceNs).value();
  EXPECT_TRUE(trace.devices[1].answered);
  EXPECT_FALSE(trace.devices[2].answered);
}

// The fastest heartbeat says most; a worker that restarts has another connection.
TEST_F(TracesTest, SpansAreOnCentralsClock) {
  traces_.AddHeartbeat(ConnectionId(2), HeartbeatAt(5'000, 1'009'000));
  traces_.AddHeartbeat(ConnectionId(2), HeartbeatAt(6'000, 1'006'500));
  traces_.AddHeartbeat(ConnectionId(2), HeartbeatAt(7'000, 1'077'000));
  traces_.AddHeartbeat(ConnectionId(0), HeartbeatAt(0, 4'000));  // does not say its clock
  ASSERT_TRUE(Begin(0).ok());
  Answer(2, {{SpanKind::kForward, 3, 8'000, 10}});
  Answer(0, {{SpanKind::kForward, 3, 8'000, 10}});
  Answer(1);
  const RunTrace trace = *traces_.Take(0).value();
  EXPECT_EQ(trace.devices[2].spans[0].begin_ns, 8'000 + 1'000'500);
  EXPECT_EQ(trace.devices[0].spans[0].begin_ns, 8'000);
}

TEST_F(TracesTest, AnOffsetIsOfTheLastHeartbeats) {
  ClockOffset offset;
  EXPECT_EQ(offset.ns(), std::nullopt);
  offset.Add(HeartbeatAt(1'000, 1'100));
  for (int i = 0; i < 15; ++i) offset.Add(HeartbeatAt(1'000, 1'900));
  EXPECT_EQ(offset.ns(), 100);
  offset.Add(HeartbeatAt(1'000, 1'800));
  EXPECT_EQ(offset.ns(), 800) << "clocks drift: the first one is forgotten";
}

TEST_F(TracesTest, WithoutAPlanThereIsNothingToTrace) {
  active_.plan.stages.clear();
  EXPECT_TRUE(absl::IsFailedPrecondition(Begin(0)));
  EXPECT_TRUE(effects_.empty());
}

}  // namespace
}  // namespace runnel::traces_test
