// Which paths are probed, in which order, and what is known of them then.

#include "central/run/machines/measuring/link_probe.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::link_probe_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kMs = 1'000'000;

class LinkProbeTest : public ::testing::Test {
 protected:
  // All but the first, which is local.
  void Begin() {
    std::vector<int> devices(roster_.devices().size() - 1);
    std::iota(devices.begin(), devices.end(), 1);
    probe_.Begin(std::move(devices), LinkProbe::Media::kFind, roster_, effects_);
  }
  // To whom the pieces went that were sent since the last time.
  std::vector<int64_t> Receivers() { return ReceiversOf<ProbePiece>(std::exchange(effects_, {})); }
  // Bytes of the train that was sent, and of the train that it asks for.
  std::pair<int64_t, int64_t> Bytes() const {
    std::pair<int64_t, int64_t> bytes = {0, 0};
    for (const auto& [to, piece] : MessagesOf<ProbePiece>(effects_)) {
      bytes.first += static_cast<int64_t>(piece.padding.size());
      bytes.second = piece.answer_bytes;
    }
    return bytes;
  }
  // Every worker elsewhere answers its pings, all after the same time but the first, which was
  // sent long before.
  void AnswerPings(int64_t round_trip_ns) {
    std::vector<int64_t> asked = Receivers();
    for (int i = 0; i < LinkProbe::kPings; ++i) {
      EXPECT_EQ(asked.size(), roster_.devices().size() - 1);
      now_ns_ += i == 0 ? 900 * kMs : round_trip_ns;
      for (const int64_t device : asked)
        probe_.AddPiece(static_cast<int>(device), Arriving(ProbePiece{.count = 1}), roster_,
                        effects_);
      if (i + 1 < LinkProbe::kPings) asked = Receivers();
    }
  }
  // The device has measured this, and its train takes `up_ns`.
  void Answer(int device, const WayMeasured& down, int64_t up_ns) {
    probe_.AddReport(device, down, roster_, effects_);
    std::vector<ProbePiece> train = MakeProbeTrain(LinkProbe::kFirstBytes);
    const auto last = static_cast<int64_t>(train.size()) - 1;
    const int64_t begin_ns = now_ns_;
    for (ProbePiece& piece : train) {
      now_ns_ = begin_ns + up_ns * piece.index / last;
      probe_.AddPiece(device, Arriving(piece), roster_, effects_);
    }
  }
  ProbePiece Arriving(ProbePiece piece) const {
    piece.arrived_ns = now_ns_;
    return piece;
  }

  Roster roster_ = FullRoster(3);
  LinkProbe probe_;
  RunEffects effects_;
  int64_t now_ns_ = 5'000 * kMs;
};

TEST_F(LinkProbeTest, WorkersOnOtherHostsArePingedAtOnceAndSentTrainsOneAfterTheOther) {
  Begin();
  AnswerPings(40 * kMs);
  EXPECT_EQ(Bytes(), std::pair(LinkProbe::kFirstBytes, LinkProbe::kFirstBytes));
  EXPECT_THAT(Receivers(), Each(1)) << "0 is local";
  Answer(2, {1e6, 500 * kMs}, 500 * kMs);
  EXPECT_THAT(Receivers(), IsEmpty()) << "it is not its turn";
  Answer(1, {1e6, 500 * kMs}, 240 * kMs);
  EXPECT_EQ(probe_.done(), 1u);
  EXPECT_THAT(Receivers(), Each(2));
  Answer(2, {2e6, 500 * kMs}, 480 * kMs);
  EXPECT_TRUE(probe_.under_way()) << "both at once";
  probe_.AddReport(1, {1e6, 250 * kMs}, roster_, effects_);
  probe_.AddReport(2, {2e6, 250 * kMs}, roster_, effects_);
  for (const int device : {1, 2})
    probe_.AddPiece(device, Arriving(ProbePiece{.count = 1}), roster_, effects_);
  EXPECT_TRUE(probe_.under_way()) << "both ways at once";
  for (const int device : {1, 2}) {
    probe_.AddReport(device, {0, 0}, roster_, effects_);
    Answer(device, {1e6 * device, 250 * kMs}, 200 * kMs);
  }
  EXPECT_FALSE(probe_.under_way());
  EXPECT_EQ(probe_.paths()[1].medium, -1);
  ASSERT_THAT(probe_.paths(), SizeIs(3));
  EXPECT_FALSE(probe_.paths()[0].down.rate.is_set());
  EXPECT_DOUBLE_EQ(probe_.paths()[1].down.rate.bytes_per_second(), 1e6);
  EXPECT_NEAR(probe_.paths()[1].up.rate.bytes_per_second(), 256e3, 1e3);
  EXPECT_NEAR(probe_.paths()[2].up.rate.bytes_per_second(), 128e3, 1e3);
}

// The smallest of several round trips, without what the ping takes of the bandwidth; half of it
// each way.
TEST_F(LinkProbeTest, PingsTellTheDelay) {
  Begin();
  Receivers();
  for (int i = 0; i < LinkProbe::kPings; ++i) {
    now_ns_ += i == 0 ? 900 * kMs : (i == 3 ? 30 : 95) * kMs;
    for (const int device : {1, 2})
      probe_.AddPiece(device, Arriving({.count = 1}), roster_, effects_);
  }
  Answer(1, {12e3, 5'000 * kMs}, 400 * kMs);
  ASSERT_TRUE(probe_.paths()[1].up.delay_seconds.has_value());
  EXPECT_NEAR(*probe_.paths()[1].up.delay_seconds, (0.030 - 0.010 - 120 / 153.6e3) / 2, 1e-4);
  EXPECT_EQ(probe_.paths()[1].down.delay_seconds, probe_.paths()[1].up.delay_seconds);
}

// Each way by itself: a train that a slow way needs seconds for says enough of it.
TEST_F(LinkProbeTest, AWayThatPassesItsTrainInNoTimeGetsALongerOne) {
  Begin();
  AnswerPings(kMs);
  Receivers();
  Answer(1, {1e6, 400 * kMs}, 60 * kMs);
  EXPECT_NEAR(static_cast<double>(Bytes().second), LinkProbe::kFirstBytes * 250.0 / 60, 16);
  EXPECT_LT(Bytes().first, 1000) << "the way down is known";
  EXPECT_THAT(Receivers(), Each(1));
  Answer(1, {7, 1}, 90 * kMs);
  EXPECT_THAT(Receivers(), Each(2)) << "a third one would tell no more";
  EXPECT_DOUBLE_EQ(probe_.paths()[1].down.rate.bytes_per_second(), 1e6);
  Answer(2, {0, 0}, 500 * kMs);
  EXPECT_EQ(Bytes(), std::pair(LinkProbe::kMostBytes, int64_t{0}));
  probe_.AddReport(2, {0, 0}, roster_, effects_);
  EXPECT_EQ(probe_.done(), 2u) << "no train is to come";
  EXPECT_FALSE(probe_.paths()[2].down.rate.is_set()) << "faster than can be measured";
  EXPECT_NEAR(probe_.paths()[2].up.rate.bytes_per_second(), 123e3, 1e3);
}

TEST_F(LinkProbeTest, ManyWorkersTakeNoLongerThanAFewSeconds) {
  roster_ = FullRoster(40);
  Begin();
  AnswerPings(20 * kMs);
  const int64_t begin_ns = now_ns_;
  int probed = 0;
  for (int device = 1; probe_.done() < probe_.asked(); ++device, ++probed)
    Answer(device, {1e5, 650 * kMs}, 650 * kMs);
  EXPECT_LT(now_ns_ - begin_ns, LinkProbe::kMostNs + 700 * kMs) << "one may just have begun";
  EXPECT_GT(probed, 8);
  EXPECT_TRUE(probe_.paths()[static_cast<size_t>(probed)].up.rate.is_set());
  EXPECT_FALSE(probe_.paths()[static_cast<size_t>(probed) + 1].up.rate.is_set());
  EXPECT_NEAR(*probe_.paths()[39].up.delay_seconds, 0.01, 1e-6) << "pings are for all";
  EXPECT_THAT(EffectsOf<LogLine>(effects_).back().text, HasSubstr(" of 39 workers"));
}

TEST_F(LinkProbeTest, NobodyElsewhereIsNobodyToProbe) {
  roster_ = FullRoster(1);
  Begin();
  EXPECT_FALSE(probe_.under_way());
  EXPECT_THAT(effects_, IsEmpty());
}

// At a barrier: of one path, without a look for media; the other keeps its figures.
TEST_F(LinkProbeTest, OnePathIsMeasuredAgain) {
  Begin();
  AnswerPings(kMs);
  Receivers();
  Answer(1, {1e6, 500 * kMs}, 500 * kMs);
  Answer(2, {2e6, 500 * kMs}, 500 * kMs);
  probe_.Cancel();
  EXPECT_FALSE(probe_.under_way());
  effects_.clear();
  probe_.Begin({2}, LinkProbe::Media::kAsKnown, roster_, effects_);
  for (int i = 0; i < LinkProbe::kPings; ++i) {
    EXPECT_THAT(Receivers(), ElementsAre(2));
    now_ns_ += 20 * kMs;
    probe_.AddPiece(2, Arriving(ProbePiece{.count = 1}), roster_, effects_);
  }
  EXPECT_THAT(Receivers(), Each(2));
  Answer(2, {1e5, 500 * kMs}, 500 * kMs);
  EXPECT_FALSE(probe_.under_way());
  EXPECT_DOUBLE_EQ(probe_.paths()[1].down.rate.bytes_per_second(), 1e6);
  EXPECT_DOUBLE_EQ(probe_.paths()[2].down.rate.bytes_per_second(), 1e5);
}

// Who leaves is not waited for, whether pings or trains are under way.
// With the media and without them.
TEST_F(LinkProbeTest, AnotherDeviceOfTheSameNumberHasNoFiguresYet) {
  for (const LinkProbe::Media media : {LinkProbe::Media::kAsKnown, LinkProbe::Media::kFind}) {
    probe_ = LinkProbe();
    effects_.clear();
    probe_.Begin({1, 2}, media, roster_, effects_);
    AnswerPings(kMs);
    Answer(1, {1e6, 400 * kMs}, 400 * kMs);
    Answer(2, {2e6, 400 * kMs}, 400 * kMs);
    ASSERT_TRUE(probe_.paths()[1].down.rate.is_set());
    probe_.Forget(1);
    EXPECT_FALSE(probe_.paths()[1].down.rate.is_set());
    EXPECT_FALSE(probe_.paths()[1].up.delay_seconds.has_value());
    EXPECT_TRUE(probe_.paths()[2].down.rate.is_set());
    probe_.Forget(77);  // of whom nothing was known
  }
}

TEST_F(LinkProbeTest, WhoLeavesIsSkipped) {
  for (const int pings : {0, 2, LinkProbe::kPings}) {
    probe_ = LinkProbe();
    probe_.Begin({1, 2}, LinkProbe::Media::kAsKnown, roster_, effects_);
    for (int i = 0; i < pings; ++i) {
      now_ns_ += 20 * kMs;
      for (const int device : {1, 2})
        probe_.AddPiece(device, Arriving(ProbePiece{.count = 1}), roster_, effects_);
    }
    probe_.Skip(1, roster_, effects_);
    probe_.Skip(1, roster_, effects_);
    EXPECT_TRUE(probe_.under_way());
    for (int i = pings; i < LinkProbe::kPings; ++i) {
      now_ns_ += 20 * kMs;
      probe_.AddPiece(2, Arriving(ProbePiece{.count = 1}), roster_, effects_);
    }
    Receivers();
    Answer(2, {1e6, 500 * kMs}, 500 * kMs);
    EXPECT_FALSE(probe_.under_way()) << pings;
    EXPECT_FALSE(probe_.paths()[1].down.rate.is_set());
    EXPECT_TRUE(probe_.paths()[2].down.rate.is_set());
  }
  probe_.Begin({1}, LinkProbe::Media::kAsKnown, roster_, effects_);
  probe_.Skip(1, roster_, effects_);
  EXPECT_FALSE(probe_.under_way()) << "nobody is left";
}

}  // namespace
}  // namespace runnel::link_probe_test
