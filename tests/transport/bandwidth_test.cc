#include "proto/transport/link/bandwidth.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/transport/link/round_trip.h"
#include "tests/support/in_process/simulated.h"

namespace runnel::bandwidth_test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(BandwidthMeter, NothingMeasuredIsZero) {
  BandwidthMeter meter;
  EXPECT_EQ(meter.bytes_per_second(), 0);
  meter.Add({0, 0});
  meter.Add({BandwidthMeter::kLeastBytes - 1, kSecond});  // latency rather than bandwidth
  meter.Add({1 << 20, 0});                                // came in one piece
  EXPECT_EQ(meter.bytes_per_second(), 0);
  EXPECT_EQ(meter.transfers(), 0);
}

TEST(BandwidthMeter, OneSlowTransferDoesNotShow) {
  BandwidthMeter meter;
  for (int i = 0; i < 4; ++i) meter.Add({100'000, kSecond / 10});
  meter.Add({100'000, kSecond});
  for (int i = 0; i < 3; ++i) meter.Add({100'000, kSecond / 10});
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
}

TEST(BandwidthMeter, AChangeShowsAfterTheLeastWindow) {
  BandwidthMeter meter;
  for (int i = 0; i < 50; ++i) meter.Add({100'000, kSecond / 10});
  for (size_t i = 0; i < BandwidthMeter::kLeastWindow; ++i) meter.Add({100'000, kSecond / 5});
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 5e5);
}

TEST(BandwidthMeter, LargeTransfersWeighMore) {
  BandwidthMeter meter;
  meter.Add({1'000'000, kSecond});
  for (int i = 0; i < 4; ++i) meter.Add({10'000, kSecond});
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
}

// A way behind a token bucket, which is full before each frame; packets come at 2.5e7 bytes a
// second as long as it holds.
FrameArrival BehindBucket(int64_t bytes, double bytes_per_second) {
  constexpr int64_t kBucket = 32 * 1024;
  constexpr int64_t kPieces = 12;
  ArrivalRecorder recorder;
  for (int64_t i = 0; i < kPieces; ++i) {
    const int64_t sent = bytes * (i + 1) / kPieces;
    const double ns =
        static_cast<double>(std::min(sent, kBucket)) * 40 +
        static_cast<double>(std::max<int64_t>(sent - kBucket, 0)) * 1e9 / bytes_per_second;
    if (i == 0) recorder.Begin(static_cast<int64_t>(ns));
    if (i > 0) recorder.Add(static_cast<int64_t>(ns), bytes / kPieces);
  }
  return recorder.Finish();
}

// Frames that fit into the bucket show how fast the first bytes after a pause pass. One train that
// is longer shows the link.
TEST(BandwidthMeter, FramesThatFitIntoATokenBucketAreNotBelievedAboveLongerOnes) {
  BandwidthMeter meter;
  for (int i = 0; i < 20; ++i) meter.Add(BehindBucket(28'000, 250e3));
  EXPECT_GT(meter.bytes_per_second(), 2e6) << "nothing longer has come yet";
  meter.Add(BehindBucket(64 * 1024, 250e3));
  EXPECT_NEAR(meter.bytes_per_second(), 250e3, 25e3);
  for (int i = 0; i < 40; ++i) meter.Add(BehindBucket(28'000, 250e3));
  EXPECT_NEAR(meter.bytes_per_second(), 250e3, 25e3);
  // A link that is faster now: longer trains say so.
  for (int i = 0; i < 3; ++i) meter.Add(BehindBucket(256 * 1024, 1e6));
  EXPECT_NEAR(meter.bytes_per_second(), 1e6, 1e5);
}

TEST(RoundTripMeter, TheSmallestOfTheLastPingsCounts) {
  RoundTripMeter meter;
  int64_t now = 0;
  const auto ping = [&](int64_t round_trip_ns) {
    now += kSecond / 2;
    const std::optional<Sequence> sent = meter.Due(now, 0);
    ASSERT_TRUE(sent.has_value());
    meter.Answered(*sent, now + round_trip_ns);
  };
  EXPECT_EQ(meter.smallest_ns(), 0) << "not measured";
  ping(9'000'000);
  EXPECT_EQ(meter.smallest_ns(), 9'000'000);
  ping(4'000'000);
  ping(30'000'000);
  EXPECT_EQ(meter.smallest_ns(), 4'000'000);
  for (size_t i = 0; i < RoundTripMeter::kWindow; ++i) ping(12'000'000);
  EXPECT_EQ(meter.smallest_ns(), 12'000'000) << "the link takes longer now";
}

TEST(RoundTripMeter, OnePingAtATimeAndNoneBehindFrames) {
  RoundTripMeter meter;
  EXPECT_FALSE(meter.Due(0, 100).has_value());
  const std::optional<Sequence> first = meter.Due(0, 0);
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(meter.Due(kSecond, 0).has_value());
  const std::optional<Sequence> second = meter.Due(RoundTripMeter::kAnswerDeadlineNs, 0);
  ASSERT_TRUE(second.has_value()) << "the first one is lost";
  meter.Answered(*first, RoundTripMeter::kAnswerDeadlineNs + 1);
  EXPECT_EQ(meter.smallest_ns(), 0) << "of a ping that was given up";
  meter.Answered(*second, RoundTripMeter::kAnswerDeadlineNs + 7);
  EXPECT_EQ(meter.smallest_ns(), 7);
  ASSERT_TRUE(meter.Due(2 * RoundTripMeter::kAnswerDeadlineNs, 0).has_value());
  meter.Connected();
  EXPECT_TRUE(meter.Due(2 * RoundTripMeter::kAnswerDeadlineNs + 1, 0).has_value());
}

TEST(BandwidthProbe, OnlyWhenNothingElseTells) {
  BandwidthProbe probe;
  probe.Connected(0);
  EXPECT_FALSE(probe.Due(BandwidthProbe::kFirstIdleNs - 1, 0));
  EXPECT_FALSE(probe.Due(BandwidthProbe::kFirstIdleNs, 1)) << "something waits";
  EXPECT_EQ(probe.Due(BandwidthProbe::kFirstIdleNs, 0), BandwidthProbe::kFirstBytes);
  EXPECT_FALSE(probe.Due(BandwidthProbe::kFirstIdleNs + kSecond, 0)) << "one at a time";

  BandwidthProbe slow;
  slow.Connected(0);
  ASSERT_TRUE(slow.Due(BandwidthProbe::kFirstIdleNs, 0));
  slow.Reported(BandwidthProbe::kFirstIdleNs, {16'000, BandwidthProbe::kLongEnoughNs});
  for (int64_t now = 3 * kSecond; now < 100 * kSecond; now += kSecond) {
    slow.Sent(now);
    EXPECT_FALSE(slow.Due(now + kSecond, 0)) << "large frames tell";
  }
}

// Large frames do not tell of a fast link: probes do, within a hundredth of its time.
TEST(BandwidthProbe, AFastLinkIsProbedInUse) {
  BandwidthProbe probe;
  probe.Connected(0);
  int64_t probing_ns = 0, probes = 0;
  const int64_t end = 1000 * kSecond;
  for (int64_t now = 0; now < end; now += kSecond / 2) {
    probe.Sent(now);
    const auto bytes = probe.Due(now, 0);
    if (!bytes) continue;
    ++probes;
    probing_ns += *bytes * 80;  // 100 Mbps
    probe.Reported(now + *bytes * 80, {*bytes, *bytes * 80});
  }
  EXPECT_GT(probes, 90);
  EXPECT_LT(probing_ns, end / 100);
}

TEST(BandwidthProbe, ShrinksOnALinkThatHasBecomeSlow) {
  BandwidthProbe probe;
  probe.Connected(0);
  int64_t now = BandwidthProbe::kFirstIdleNs;
  while (const auto bytes = probe.Due(now, 0)) probe.Reported(now, {*bytes, *bytes});
  now += BandwidthProbe::kIdleNs;
  std::vector<int64_t> sizes;
  for (int i = 0; i < 5; ++i) {
    const auto bytes = probe.Due(now, 0);
    ASSERT_TRUE(bytes);
    sizes.push_back(*bytes);
    now += *bytes * 8000;  // 1 Mbps
    probe.Reported(now, {*bytes, *bytes * 8000});
    EXPECT_FALSE(probe.Due(now + *bytes * 8000 * 99, 0)) << "over 1 % of the time";
    now += std::max(*bytes * 8000 * BandwidthProbe::kPauseFactor, BandwidthProbe::kIdleNs);
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{256 << 10, 64 << 10, 16 << 10, 16 << 10, 16 << 10}));
}

TEST(ArrivalRecorder, NotesEveryPieceOrEverySecondOne) {
  for (const int pieces : {1, 2, 3, 15, 17, 18, 40, 1000}) {
    ArrivalRecorder recorder;
    recorder.Begin(5);
    for (int i = 1; i <= pieces; ++i) recorder.Add(5 + 10 * i, 100);
    const FrameArrival arrival = recorder.Finish();
    EXPECT_EQ(arrival.bytes, 100 * pieces);
    EXPECT_EQ(arrival.ns, 10 * pieces);
    const size_t points = arrival.between.size();
    EXPECT_LT(points, ArrivalRecorder::kMostPoints);
    EXPECT_GE(points, std::min<size_t>(pieces - 1, ArrivalRecorder::kMostPoints / 2 - 1));
    int64_t last = 0;
    for (const ArrivalPoint& point : arrival.between) {
      EXPECT_EQ(point.bytes, 10 * point.ns);
      EXPECT_GT(point.ns, last);
      last = point.ns;
    }
    EXPECT_LT(last, arrival.ns);
  }
}

TEST(MeasuredFrames, SomeFramesGoInPieces) {
  const auto header = [](int64_t bytes) {
    FrameHeader header;
    header.payload_bytes = static_cast<uint64_t>(bytes);
    return header;
  };
  // Of 100 frames, one in 20 ms.
  for (const int64_t bytes : {MeasuredFrames::kLeastPayloadBytes, int64_t{1} << 20}) {
    MeasuredFrames frames;
    int count = 0;
    for (int i = 0; i < MeasuredFrames::kFirst + 100; ++i) {
      const int64_t piece = frames.PieceBytes(header(bytes), kSecond + i * 20'000'000);
      EXPECT_TRUE(i >= MeasuredFrames::kFirst || piece > 0) << i;
      EXPECT_TRUE(piece == 0 || bytes <= piece * MeasuredFrames::kMostPieces);
      if (i >= MeasuredFrames::kFirst && piece > 0) ++count;
    }
    EXPECT_EQ(count, 10) << bytes;
    FrameHeader probe = header(bytes);
    probe.kind = FrameKind::kProbe;
    for (int i = 0; i < 20; ++i) EXPECT_GT(frames.PieceBytes(probe, 4 * kSecond), 0);
  }
  MeasuredFrames frames;
  EXPECT_EQ(frames.PieceBytes(header(MeasuredFrames::kLeastPayloadBytes - 1), 0), 0);
  for (int i = 0; i < 100; ++i) {
    EXPECT_GT(frames.PieceBytes(header(20'000), i * MeasuredFrames::kEveryNs), 0) << "seldom";
  }
}

TEST(BandwidthProbe, GrowsUntilItLastsLongEnough) {
  BandwidthProbe probe;
  probe.Connected(0);
  int64_t now = BandwidthProbe::kFirstIdleNs;
  std::vector<int64_t> sizes;
  for (int i = 0; i < 6; ++i) {
    const auto bytes = probe.Due(now, 0);
    if (!bytes) break;
    sizes.push_back(*bytes);
    probe.Reported(now, {*bytes, *bytes});  // a byte a nanosecond
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{16 << 10, 64 << 10, 256 << 10}));
  EXPECT_FALSE(probe.Due(now + BandwidthProbe::kIdleNs - 1, 0));
  EXPECT_EQ(probe.Due(now + BandwidthProbe::kIdleNs, 0), BandwidthProbe::kMaxBytes);
}

TEST(BandwidthProbe, ALostReportIsNotWaitedForForever) {
  BandwidthProbe probe;
  probe.Connected(0);
  const int64_t now = BandwidthProbe::kFirstIdleNs;
  ASSERT_TRUE(probe.Due(now, 0));
  EXPECT_TRUE(probe.Due(now + BandwidthProbe::kReportDeadlineNs, 0));
  probe.Connected(now + BandwidthProbe::kReportDeadlineNs);
  EXPECT_TRUE(probe.Due(now + BandwidthProbe::kReportDeadlineNs + BandwidthProbe::kFirstIdleNs, 0))
      << "a new connection has no report under way";
}

TEST(BandwidthProbe, ReportsAreReadBackOrRefused) {
  const auto parse = [](const std::string& text) {
    return ParseProbeReport(
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size()));
  };
  const Frame report = MakeProbeReport({12345, 678});
  const auto arrival = ParseProbeReport(report.payload.bytes());
  ASSERT_TRUE(arrival.ok()) << arrival.status();
  EXPECT_EQ(arrival->bytes, 12345);
  EXPECT_EQ(arrival->ns, 678);
  for (const char* text : {"", "1", "1 2 3", "a b", "-1 2", "1 0", "1 99999999999999999999"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(parse(text).status())) << text;
  }
}

// What frames of random sizes and pauses say about a simulated link is its rate.
class Sink final : public ConnectionObserver {
 public:
  absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
  void OnFrame(Frame frame) override { meter.Add(frame.arrival); }
  void OnClosed(const absl::Status&) override {}
  BandwidthMeter meter;
};

TEST(BandwidthMeter, FindsTheRateOfASimulatedLinkInEachDirection) {
  std::mt19937 draws(7);
  for (const double mbps : {0.25, 1.0, 4.0, 50.0}) {
    SimulatedNetwork network({.seed = 7, .min_delay_ns = 1'000'000, .max_delay_ns = 30'000'000});
    const auto a = network.NewTransport("a");
    const auto b = network.NewTransport("b");
    Sink there, back;
    std::shared_ptr<Connection> accepted;
    const auto listener = *b->Listen("127.0.0.1:0", [&](std::shared_ptr<Connection> connection) {
      accepted = std::move(connection);
      return Accepted{&there, {.megabits_per_second = mbps / 2}};
    });
    const auto dialled = *a->Dial(listener->address(), &back, {.megabits_per_second = mbps});
    while (accepted == nullptr) ASSERT_TRUE(network.Step());
    for (int i = 0; i < 20; ++i) {
      const int64_t bytes = 16'384 + static_cast<int64_t>(draws() % 300'000);
      ASSERT_TRUE(dialled->Send(MakeProbe(bytes)).ok());
      ASSERT_TRUE(accepted->Send(MakeProbe(bytes)).ok());
      network.RunUntil(network.now_ns() + static_cast<int64_t>(draws() % (20 * kSecond)));
    }
    while (network.Step()) {
    }
    EXPECT_NEAR(there.meter.bytes_per_second(), mbps * 1e6 / 8, mbps * 1e6 / 8 * 1e-3);
    EXPECT_NEAR(back.meter.bytes_per_second(), mbps * 1e6 / 16, mbps * 1e6 / 16 * 1e-3);
    EXPECT_EQ(there.meter.transfers(), 20);
  }
}

}  // namespace
}  // namespace runnel::bandwidth_test
