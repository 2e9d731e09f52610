// The table of noise by link, direction and codec: filled way by way, and what plans take from it.

#include "central/planning/noise_by_way.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "central/planning/bandwidth_bits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "tests/base/codecs.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::noise_by_way_test {
namespace {

using ::testing::ElementsAre;

Plan PlanWith(const std::vector<LinkPlan>& links) {
  std::vector<int> devices(links.size() + 1), last_layers(links.size() + 1);
  std::iota(devices.begin(), devices.end(), 0);
  for (size_t i = 0; i < last_layers.size(); ++i) last_layers[i] = 3 * static_cast<int>(i) + 2;
  Plan plan = PlanOf(devices, last_layers);
  plan.links = links;
  return plan;
}

std::vector<std::string> Names(const Plan& plan, int64_t epoch = 0) {
  std::vector<std::string> names;
  for (const WayNoise& way : LossyWays(plan, epoch)) names.push_back(ToString(way));
  return names;
}

TEST(LossyWays, AreThoseThatLoseSomethingInTheEpoch) {
  const Plan plan = PlanWith({{Codecs("eden:4"), Codecs("identity")},
                              {Codecs("identity"), Codecs("0:identity,2:stochastic:4")},
                              {Codecs("identity"), Codecs("identity")}});
  EXPECT_THAT(Names(plan), ElementsAre("eden:4 from stage 0 to 1"));
  EXPECT_THAT(Names(plan, 2),
              ElementsAre("eden:4 from stage 0 to 1", "stochastic:4 from stage 2 to 1"));
  const std::vector<WayNoise> ways = LossyWays(plan, 2);
  EXPECT_EQ(ways[0].layer, 2);
  EXPECT_EQ(ways[1].layer, 5);
  EXPECT_NEAR(ways[0].by_table + ways[1].by_table, NoiseByTable(plan, 2), 1e-12);
  EXPECT_EQ(CodedIn(ways[1]), (CodedWays{.link = 1, .backward = true}));
}

// A codec whose encoder must see the gradients is not tried without them.
TEST(LossyWays, AreBothOfACodecThatNeedsGradients) {
  const Plan plan = PlanWith(
      {{Codecs("mbq_c:3"), Codecs("stochastic:8")}, {Codecs("amsgrad_mbq:3"), Codecs("identity")}});
  EXPECT_THAT(Names(plan), ElementsAre("mbq_c:3 and stochastic:8 between stages 0 and 1",
                                       "amsgrad_mbq:3 and identity between stages 1 and 2"));
  EXPECT_EQ(CodedIn(LossyWays(plan, 0)[0]),
            (CodedWays{.link = 0, .forward = true, .backward = true}));
}

double SumOf(const NoiseMeasured& noise) {
  double sum = 0;
  for (const WayNoise& way : noise.ways) sum += way.added;
  return sum;
}

// Ways that add what they add, however many are coded at once.
TEST(NoiseByWay, EachWayHasItsTurnAndTheSumStaysThatOfTheWhole) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    const CounterRandom random(seed, RandomPurpose::kTest, 1, 0);
    uint64_t next = 0;
    std::vector<LinkPlan> links(1 + seed % 4, {Codecs("eden:3"), Codecs("eden:4")});
    const Plan plan = PlanWith(links);
    NoiseMeasured noise = {.by_table = NoiseByTable(plan, 0), .ways = LossyWays(plan, 0)};
    std::vector<double> truth;
    for (size_t i = 0; i < noise.ways.size(); ++i) truth.push_back(0.001 + random.Uniform(next++));
    noise.added = std::accumulate(truth.begin(), truth.end(), 0.0);
    ShareNoise({}, noise);
    EXPECT_NEAR(SumOf(noise), noise.added, 1e-12);
    std::set<int> turns;
    while (const std::optional<int> way = NextWay(noise)) {
      for (const WayNoise& other : noise.ways) {
        if (other.measured) continue;
        EXPECT_LE(other.added, noise.ways[static_cast<size_t>(*way)].added);
      }
      EXPECT_TRUE(turns.insert(*way).second);
      SetWayNoise(*way, truth[static_cast<size_t>(*way)], noise);
      // Where the rest is next to nothing it is taken for a little more.
      EXPECT_GE(SumOf(noise), noise.added - 1e-12);
      EXPECT_LE(SumOf(noise), 1.25 * noise.added + 1e-12);
    }
    EXPECT_EQ(turns.size(), truth.size());
    for (size_t i = 0; i < truth.size(); ++i) EXPECT_EQ(noise.ways[i].added, truth[i]);
    EXPECT_NEAR(SumOf(noise), noise.added, 1e-12);
    const NoiseRatios ratios = NoiseRatiosOf(noise);
    for (const WayNoise& way : noise.ways) {
      const Direction direction = way.forward ? Direction::kForward : Direction::kBackward;
      EXPECT_NEAR(way.by_table * ratios.At(way.layer, direction),
                  std::clamp(way.added, 0.01 * way.by_table, 100 * way.by_table), 1e-12);
    }
  }
}

// Another measurement of all at once says how much, the earlier ones of ways say where.
TEST(NoiseByWay, ANewWholeIsSharedAsTheWaysWereBefore) {
  const Plan plan =
      PlanWith({{Codecs("eden:4"), CodecSchedule()}, {Codecs("eden:4"), CodecSchedule()}});
  NoiseMeasured noise = {
      .added = 0.04, .by_table = NoiseByTable(plan, 0), .ways = LossyWays(plan, 0)};
  ShareNoise({}, noise);
  EXPECT_DOUBLE_EQ(noise.ways[0].added, 0.02);
  SetWayNoise(0, 0.03, noise);
  EXPECT_DOUBLE_EQ(noise.ways[1].added, 0.01);
  EXPECT_FALSE(noise.ways[1].measured);
  NoiseMeasured later = {.added = 0.08, .by_table = noise.by_table, .ways = LossyWays(plan, 0)};
  ShareNoise(NoiseRatiosOf(noise), later);
  EXPECT_DOUBLE_EQ(later.ways[0].added, 0.06);
  EXPECT_DOUBLE_EQ(later.ways[1].added, 0.02);
  EXPECT_FALSE(later.ways[0].measured);
  EXPECT_TRUE(AreSameWays(noise.ways, later.ways));
  later.ways[1].layer = 4;
  EXPECT_FALSE(AreSameWays(noise.ways, later.ways));
}

TEST(NoiseByWay, ACodecThatGoesToAnExactLinkIsAnotherOne) {
  const LinkPlan lossy = {Codecs("eden:4"), CodecSchedule()}, exact;
  const auto ways = [](const std::vector<LinkPlan>& links) {
    return LossyWays(PlanWith(links), 0);
  };
  EXPECT_TRUE(HaveOtherCodecs(ways({lossy, exact}), ways({exact, lossy})));
  EXPECT_TRUE(HaveOtherCodecs(ways({lossy, exact}), ways({lossy, lossy})));
  EXPECT_TRUE(HaveOtherCodecs(ways({lossy}), ways({{CodecSchedule(), Codecs("eden:4")}})));
  EXPECT_FALSE(HaveOtherCodecs(ways({lossy, lossy}), ways({lossy, exact}))) << "fewer add less";
  std::vector<WayNoise> moved = ways({lossy, exact});
  ++moved[0].layer;
  EXPECT_FALSE(HaveOtherCodecs(ways({lossy, exact}), moved)) << "a cut is no codec";
  moved[0].codecs = "eden:5";
  EXPECT_FALSE(HaveOtherCodecs(ways({lossy, exact}), moved)) << "the text of all codecs tells";
}

TEST(NoiseByWay, TheOnlyWayIsTheWhole) {
  const Plan plan = PlanWith({{Codecs("eden:4"), CodecSchedule()}});
  NoiseMeasured noise = {
      .added = 0.5, .by_table = NoiseByTable(plan, 0), .ways = LossyWays(plan, 0)};
  ShareNoise({}, noise);
  EXPECT_TRUE(noise.ways[0].measured);
  EXPECT_DOUBLE_EQ(noise.ways[0].added, 0.5);
  EXPECT_FALSE(NextWay(noise).has_value());
  // Journals of earlier releases have no ways.
  EXPECT_EQ(NoiseRatiosOf({.added = 0.02, .by_table = 0.04}), (NoiseRatios{.all = 0.5}));
}

}  // namespace
}  // namespace runnel::noise_by_way_test
