// Which paths share a medium, from trains on several ways at once.

#include "central/run/machines/measuring/medium_probe.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::medium_probe_test {
namespace {

constexpr double kMbps = 10;
constexpr int64_t kPingNs = 1'000'000'000;  // when pings are answered
constexpr int64_t kTrainNs = 250'000'000;   // of the bytes below
constexpr int64_t kTrainBytes = 312'500;

// A network of paths of 10 Mbps. `radios`: paths of one radio, both ways; `uplinks`: paths whose
// ways down share something, and so do their ways up.
struct Network {
  std::vector<std::vector<int>> radios;
  std::vector<std::vector<int>> uplinks;
  // Radios let what goes down pass first, as a whole; then what goes up has them for itself.
  bool down_first = false;

  // What a way gets while these are in use.
  double Share(int device, bool is_up, const std::vector<std::pair<int, bool>>& in_use) const {
    int users = 0;
    for (const auto& [other, other_up] : in_use) {
      if (down_first && other_up != is_up) continue;
      const bool same = other == device && other_up == is_up;
      users += same || AreTogether(radios, device, other) ||
                       (other_up == is_up && AreTogether(uplinks, device, other))
                   ? 1
                   : 0;
    }
    return 1.0 / users;
  }
  static bool AreTogether(const std::vector<std::vector<int>>& groups, int a, int b) {
    for (const std::vector<int>& group : groups) {
      const auto has = [&group](int device) {
        return std::find(group.begin(), group.end(), device) != group.end();
      };
      if (has(a) && has(b)) return true;
    }
    return false;
  }
};

class MediumProbeTest : public ::testing::Test {
 protected:
  // Answers every round as the network would. How many rounds there were.
  int Probe(const Network& network, int workers) {
    const Roster roster = FullRoster(workers);
    RunEffects effects;
    std::vector<PathFigures> paths(static_cast<size_t>(workers));
    for (int i = 1; i < workers; ++i) {
      paths[static_cast<size_t>(i)].down.rate = LinkRate::Mbps(kMbps);
      paths[static_cast<size_t>(i)].up.rate = LinkRate::Mbps(kMbps);
    }
    probe_.Begin(paths, roster, effects);
    int rounds = 0;
    for (; probe_.under_way() && rounds < 100; ++rounds) {
      // A train that asks for one back is of a byte a piece.
      std::vector<std::pair<int, bool>> in_use;
      for (const auto& [to, piece] : MessagesOf<ProbePiece>(std::exchange(effects, {}))) {
        if (piece.is_ping()) {
          probe_.AddPiece(static_cast<int>(to), {.count = 1, .arrived_ns = kPingNs}, roster,
                          effects);
          continue;
        }
        if (piece.index == 0) in_use.emplace_back(static_cast<int>(to), piece.answer_bytes > 0);
      }
      for (const auto& [device, is_up] : in_use) {
        const double rate =
            LinkRate::Mbps(kMbps).bytes_per_second() * network.Share(device, is_up, in_use);
        probe_.AddReport(device, {is_up ? 1e9 : rate, 1}, roster, effects);
        const bool waits =
            is_up && network.down_first && Network::AreTogether(network.radios, device, device);
        if (is_up) SendUp(device, rate, waits ? kTrainNs : 0, roster, effects);
      }
    }
    return rounds;
  }
  // first_ns: how long the train waits in front of the path.
  void SendUp(int device, double rate, int64_t first_ns, const Roster& roster,
              RunEffects& effects) {
    int64_t bytes = 0;
    for (ProbePiece& piece : MakeProbeTrain(kTrainBytes)) {
      bytes += static_cast<int64_t>(piece.padding.size());
      piece.arrived_ns =
          kPingNs + first_ns + static_cast<int64_t>(static_cast<double>(bytes) / rate * 1e9);
      probe_.AddPiece(device, piece, roster, effects);
    }
  }
  std::vector<int> Media() const {
    std::vector<int> media;
    for (const PathFigures& path : probe_.paths()) media.push_back(path.medium);
    return media;
  }

  MediumProbe probe_;
};

TEST_F(MediumProbeTest, PathsOfTheirOwnShareNothing) {
  EXPECT_EQ(Probe({}, 4), 3);
  EXPECT_THAT(Media(), testing::Each(-1));
}

TEST_F(MediumProbeTest, ARadioIsFoundInAFewRounds) {
  EXPECT_EQ(Probe({.radios = {{1, 2, 3}}}, 4), 3) << "all down, pings, both ways";
  EXPECT_THAT(Media(), testing::ElementsAre(-1, 0, 0, 0));
  EXPECT_TRUE(probe_.paths()[2].half_duplex);
}

TEST_F(MediumProbeTest, ARadioBesideCablesHasItsStationsOnly) {
  Probe({.radios = {{2, 4}}}, 6);
  EXPECT_THAT(Media(), testing::ElementsAre(-1, -1, 0, -1, 0, -1));
}

TEST_F(MediumProbeTest, SeveralMediaAreToldApart) {
  Probe({.radios = {{1, 4, 5}}, .uplinks = {{2, 3}}}, 7);
  const std::vector<int> media = Media();
  EXPECT_EQ(media[1], media[4]);
  EXPECT_EQ(media[1], media[5]);
  EXPECT_EQ(media[2], media[3]);
  EXPECT_NE(media[1], media[2]);
  EXPECT_EQ(media[6], -1);
  EXPECT_TRUE(probe_.paths()[1].half_duplex);
  EXPECT_FALSE(probe_.paths()[2].half_duplex);
}

// One worker on a radio: its ways down and up share it.
TEST_F(MediumProbeTest, OneStationHasARadioToo) {
  EXPECT_EQ(Probe({.radios = {{1}}}, 2), 2);
  EXPECT_THAT(Media(), testing::ElementsAre(-1, 0));
  EXPECT_TRUE(probe_.paths()[1].half_duplex);
}

// The rate of neither train says anything then.
TEST_F(MediumProbeTest, ATrainThatWaitsForAnotherSharesARadioWithIt) {
  Probe({.radios = {{1, 2, 3}}, .down_first = true}, 4);
  EXPECT_THAT(Media(), testing::ElementsAre(-1, 0, 0, 0));
  EXPECT_TRUE(probe_.paths()[1].half_duplex);
  Probe({.uplinks = {{1, 2, 3}}, .down_first = true}, 4);
  EXPECT_THAT(Media(), testing::ElementsAre(-1, 0, 0, 0));
  EXPECT_FALSE(probe_.paths()[1].half_duplex);
}

// What is faster than a plan waits for is left alone, and so is what has no rate to compare with.
TEST_F(MediumProbeTest, FastPathsAreNotProbed) {
  RunEffects effects;
  std::vector<PathFigures> paths(3);
  paths[1].down.rate = paths[1].up.rate = LinkRate::Mbps(900);
  paths[2].down.rate = LinkRate::Mbps(10);
  probe_.Begin(paths, FullRoster(3), effects);
  EXPECT_FALSE(probe_.under_way());
  EXPECT_TRUE(effects.empty());
}

}  // namespace
}  // namespace runnel::medium_probe_test
