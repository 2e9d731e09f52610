// Which paths are probed, in which order, and what is known of them then.

#include "central/run/machines/link_probe.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kMs = 1'000'000;

class LinkProbeTest : public ::testing::Test {
 protected:
  // To whom the pieces went that were sent since the last time, and their bytes.
  std::vector<int64_t> Receivers() { return ReceiversOf<ProbePiece>(std::exchange(effects_, {})); }
  int64_t Bytes() const {
    int64_t bytes = 0;
    for (const auto& [to, piece] : MessagesOf<ProbePiece>(effects_))
      bytes += static_cast<int64_t>(piece.padding.size());
    return bytes;
  }
  // The device has measured this, and its train takes `up_ns`.
  void Answer(int device, const WayMeasured& down, int64_t up_ns) {
    probe_.AddReport(device, down);
    std::vector<ProbePiece> train = MakeProbeTrain(LinkProbe::kFirstBytes);
    const auto last = static_cast<int64_t>(train.size()) - 1;
    for (ProbePiece& piece : train) {
      piece.arrived_ns = up_ns * piece.index / last;
      probe_.AddPiece(device, piece, roster_, effects_);
    }
  }

  Roster roster_ = FullRoster(3);
  LinkProbe probe_;
  RunEffects effects_;
};

TEST_F(LinkProbeTest, WorkersOnOtherHostsAreProbedOneAfterTheOther) {
  probe_.Begin(roster_, effects_);
  EXPECT_EQ(Bytes(), LinkProbe::kFirstBytes);
  EXPECT_THAT(Receivers(), Each(1)) << "0 is local";
  Answer(2, {1e6, 500 * kMs}, 500 * kMs);
  EXPECT_THAT(Receivers(), IsEmpty()) << "it is not its turn";
  Answer(1, {1e6, 500 * kMs}, 240 * kMs);
  EXPECT_EQ(probe_.done(), 1u);
  EXPECT_THAT(Receivers(), Each(2));
  Answer(2, {2e6, 500 * kMs}, 480 * kMs);
  EXPECT_FALSE(probe_.under_way());
  ASSERT_THAT(probe_.rates(), SizeIs(3));
  EXPECT_FALSE(probe_.rates()[0].down.is_set());
  EXPECT_DOUBLE_EQ(probe_.rates()[1].down.bytes_per_second(), 1e6);
  EXPECT_NEAR(probe_.rates()[1].up.bytes_per_second(), 256e3, 1e3);
  EXPECT_NEAR(probe_.rates()[2].up.bytes_per_second(), 128e3, 1e3);
}

TEST_F(LinkProbeTest, ATrainThatTellsLittleIsFollowedByOneThatIsLonger) {
  probe_.Begin(roster_, effects_);
  Receivers();
  Answer(1, {8e6, 8 * kMs}, 60 * kMs);
  EXPECT_NEAR(static_cast<double>(Bytes()), LinkProbe::kFirstBytes * 250.0 / 60, 16);
  EXPECT_THAT(Receivers(), Each(1));
  Answer(1, {9e6, 30 * kMs}, 90 * kMs);
  EXPECT_THAT(Receivers(), Each(2)) << "a third one would tell no more";
  EXPECT_DOUBLE_EQ(probe_.rates()[1].down.bytes_per_second(), 9e6);
  Answer(2, {0, 0}, 0);
  EXPECT_EQ(Bytes(), LinkProbe::kMostBytes);
  Answer(2, {0, 0}, 0);
  EXPECT_FALSE(probe_.under_way());
  EXPECT_FALSE(probe_.rates()[2].up.is_set()) << "faster than can be measured";
}

TEST_F(LinkProbeTest, NobodyElsewhereIsNobodyToProbe) {
  roster_ = FullRoster(1);
  probe_.Begin(roster_, effects_);
  EXPECT_FALSE(probe_.under_way());
  EXPECT_THAT(effects_, IsEmpty());
}

}  // namespace
}  // namespace runnel
