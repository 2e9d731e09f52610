#include "partition/simulator.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/partition/reference_pipeline.h"

namespace runnel::simulator_test {
namespace {

using ::testing::HasSubstr;

struct RandomOptions {
  int max_stages = 5;
  bool codecs = false;
  // Of which ways take one at random; -1: every way has its own bandwidth.
  int32_t media = -1;
  // Likewise of which hosts stages compute on one; -1: every stage has its own processor.
  int32_t hosts = -1;
  bool defers = false;
  int64_t largest_ns = 40;
};

SimulatedPipeline RandomPipeline(std::mt19937& random, const RandomOptions& options) {
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  SimulatedPipeline pipeline;
  const int64_t stages = draw(1, options.max_stages);
  int64_t cap = draw(1, 3);
  for (int64_t i = 0; i < stages; ++i) {
    pipeline.stages.push_back(
        {draw(1, options.largest_ns), draw(1, options.largest_ns), draw(0, options.largest_ns)});
    pipeline.caps.insert(pipeline.caps.begin(), cap);
    cap += draw(0, 3);
    if (options.defers) pipeline.deferred_weight_gradients.push_back(draw(0, 4));
    if (i == 0) continue;
    const auto way = [&] {
      const int64_t codec = options.codecs ? 20 : 0;
      WayTimes times = {draw(0, codec), draw(1, 2 * options.largest_ns), draw(0, 20),
                        draw(0, codec)};
      if (options.media >= 0) times.medium = static_cast<int32_t>(draw(-1, options.media));
      return times;
    };
    const WayTimes down = way();
    pipeline.links.push_back({down, way()});
  }
  pipeline.micro_batches = draw(1, 30);
  if (options.hosts < 0) return pipeline;
  for (StageTimes& stage : pipeline.stages)
    stage.host = static_cast<int32_t>(draw(-1, options.hosts));
  for (int32_t host = 0; host <= options.hosts; ++host)
    pipeline.host_processors.push_back(0.25 * static_cast<double>(draw(1, 12)));
  return pipeline;
}

// A forward of 10 that nobody answers, over a link of 5 and back, to 30 of forward and backward.
SimulatedPipeline FrozenFirst(int64_t cap) {
  SimulatedPipeline pipeline;
  pipeline.stages = {{10, 0, 0, true}, {10, 10, 10}};
  pipeline.links = {{{0, 5, 0, 0}, {0, 0, 2, 0}}};
  pipeline.caps = {cap, 1};
  pipeline.micro_batches = 4;
  return pipeline;
}

TEST(Simulator, AFrozenStageRunsAheadByItsCap) {
  std::string ends;
  const auto note = [&](int stage, Action action, int64_t sequence, int64_t end_ns) {
    if (stage == 0 && action == Action::kForward)
      ends += std::to_string(sequence) + "@" + std::to_string(end_ns) + " ";
  };
  ASSERT_TRUE(Simulate(FrozenFirst(1), note).ok());
  // Each waits for the word that the one before has begun: 15 + 2, 45 + 2, 75 + 2.
  EXPECT_EQ(ends, "0@10 1@27 2@57 3@87 ");
  ends.clear();
  const auto run = Simulate(FrozenFirst(2), note);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(ends, "0@10 1@20 2@30 3@57 ");
  EXPECT_EQ(run->total_ns, 15 + 4 * 30);
  EXPECT_EQ(run->up_busy_ns[0], 0);
  EXPECT_EQ(run->compute_busy_ns[0], 40);
}

TEST(Simulator, SteadyPeriodsOfFrozenStages) {
  EXPECT_NEAR(*SteadyPeriodNs(FrozenFirst(2)), 30, 1e-6);
  SimulatedPipeline slow_front = FrozenFirst(1);
  slow_front.stages[0].forward_ns = 100;
  EXPECT_DOUBLE_EQ(BoundNs(slow_front), 107);
  EXPECT_NEAR(*SteadyPeriodNs(slow_front), 107, 1e-6);
  slow_front.caps[0] = 2;
  EXPECT_NEAR(*SteadyPeriodNs(slow_front), 100, 1e-6);
}

TEST(Simulator, OnlyStagesInFrontAreFrozen) {
  SimulatedPipeline pipeline = FrozenFirst(1);
  pipeline.stages[0].input_gradient_ns = 1;
  EXPECT_THAT(std::string(Simulate(pipeline).status().message()),
              HasSubstr("stage 0 cannot be one of forwards alone"));
  pipeline = FrozenFirst(1);
  std::swap(pipeline.stages[0], pipeline.stages[1]);
  EXPECT_FALSE(Simulate(pipeline).ok());
}

TEST(Simulator, EqualsTheRecurrence) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const SimulatedPipeline pipeline = RandomPipeline(random, {.defers = seed % 2 == 1});
    ASSERT_EQ(EndsBySimulation(pipeline), EndsByRecurrence(pipeline)) << "seed " << seed;
  }
}

TEST(Simulator, EqualsTickAfterTick) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const SimulatedPipeline pipeline =
        RandomPipeline(random, {.max_stages = 4,
                                .codecs = seed % 2 == 0,
                                .media = static_cast<int32_t>(seed % 4) - 1,
                                .defers = seed % 5 < 2});
    ASSERT_EQ(EndsBySimulation(pipeline), EndsByTicks(pipeline)) << "seed " << seed;
  }
}

TEST(Simulator, KeepsTheOrderOfStageActions) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    SimulatedPipeline pipeline =
        RandomPipeline(random, {.codecs = true,
                                .media = 1,
                                .hosts = static_cast<int32_t>(seed % 3) - 1,
                                .defers = seed % 2 == 1});
    pipeline.drain_every = 1 + seed % 7;
    std::vector<std::vector<ScheduledAction>> seen(pipeline.stages.size());
    int64_t last_ns = 0;
    const auto note = [&](int stage, Action action, int64_t sequence, int64_t end_ns) {
      seen[stage].push_back({action, sequence, 0});
      last_ns = std::max(last_ns, end_ns);
    };
    const absl::StatusOr<SimulatedRun> run = Simulate(pipeline, note);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(last_ns, run->total_ns);
    for (size_t i = 0; i < seen.size(); ++i) {
      std::vector<ScheduledAction> expected = StageActions(
          {pipeline.caps[i], seed % 2 == 1 ? pipeline.deferred_weight_gradients[i] : 0},
          pipeline.micro_batches, pipeline.drain_every, 1);
      for (ScheduledAction& action : expected) action.version = 0;
      EXPECT_EQ(seen[i], expected) << "seed " << seed << " stage " << i;
    }
  }
}

TEST(Simulator, StretchesThatAreAlikeAreSimulatedOnce) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    SimulatedPipeline pipeline = RandomPipeline(random, {.codecs = true});
    pipeline.micro_batches = 50;
    pipeline.drain_every = 7;
    pipeline.drain_pause_ns = 5;
    const absl::StatusOr<SimulatedRun> fast = Simulate(pipeline);
    const absl::StatusOr<SimulatedRun> slow =
        Simulate(pipeline, [](int, Action, int64_t, int64_t) {});
    ASSERT_TRUE(fast.ok() && slow.ok());
    EXPECT_EQ(fast->total_ns, slow->total_ns);
    EXPECT_EQ(fast->compute_busy_ns, slow->compute_busy_ns);
    EXPECT_EQ(fast->codec_busy_ns, slow->codec_busy_ns);
    EXPECT_EQ(fast->up_busy_ns, slow->up_busy_ns);
    for (size_t i = 0; i < pipeline.stages.size(); ++i) {
      EXPECT_EQ(fast->compute_busy_ns[i], 50 * pipeline.stages[i].total_ns());
    }
  }
}

// On full duplex without coding the closed form is the period, not only a bound; with deferred
// weight-gradients too.
TEST(Simulator, SteadyPeriodIsTheClosedForm) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const SimulatedPipeline pipeline =
        RandomPipeline(random, {.max_stages = 5, .defers = seed % 2 == 1, .largest_ns = 4000});
    const absl::StatusOr<double> period = SteadyPeriodNs(pipeline, 2000);
    ASSERT_TRUE(period.ok()) << period.status();
    EXPECT_NEAR(*period, BoundNs(pipeline), 0.005 * BoundNs(pipeline)) << "seed " << seed;
  }
}

TEST(Simulator, NothingGoesBelowTheBound) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const SimulatedPipeline pipeline = RandomPipeline(random, {.codecs = true,
                                                               .media = seed % 2 == 0 ? 1 : -1,
                                                               .hosts = seed % 4 < 2 ? 1 : -1,
                                                               .largest_ns = 4000});
    const absl::StatusOr<double> period = SteadyPeriodNs(pipeline, 2000);
    ASSERT_TRUE(period.ok()) << period.status();
    EXPECT_GE(*period, BoundNs(pipeline) * 0.995) << "seed " << seed;
    EXPECT_GE(BoundNs(pipeline), ResourceBoundNs(pipeline));
  }
}

// Where the closed form is exact no simulation is needed, and where it is not the period does not
// depend on where in the pipeline's cycle it was looked at.
TEST(Simulator, SteadyPeriodIsThatOfLongRuns) {
  int exact = 0;
  for (uint32_t seed = 0; seed < 120; ++seed) {
    std::mt19937 random(seed);
    const SimulatedPipeline pipeline = RandomPipeline(
        random, {.codecs = seed % 3 == 0, .media = seed % 3 == 1 ? 1 : -1, .largest_ns = 4000});
    const bool is_exact = BoundIsExact(pipeline);
    exact += is_exact ? 1 : 0;
    const absl::StatusOr<double> period = SteadyPeriodNs(pipeline);
    const absl::StatusOr<double> of_long_run = SteadyPeriodNs(pipeline, 20'000);
    ASSERT_TRUE(period.ok() && of_long_run.ok()) << period.status() << of_long_run.status();
    EXPECT_NEAR(*period, *of_long_run, (is_exact ? 1e-4 : 4e-3) * *of_long_run) << "seed " << seed;
  }
  EXPECT_GT(exact, 40);
  EXPECT_LT(exact, 100);
}

// Two links on one radio through an access point: four frames a micro-batch, one at a time.
TEST(Simulator, AMediumSendsOneFrameAtATime) {
  SimulatedPipeline pipeline;
  pipeline.stages.assign(3, {10, 10, 10});
  const WayTimes way = {0, 50, 0, 0, 7};
  pipeline.links.assign(2, {way, way});
  pipeline.caps = {9, 6, 3};
  EXPECT_DOUBLE_EQ(ResourceBoundNs(pipeline), 200);
  EXPECT_FALSE(BoundIsExact(pipeline));
  EXPECT_NEAR(*SteadyPeriodNs(pipeline), 200, 1);
  for (LinkTimes& link : pipeline.links) link.up.medium = 8;
  EXPECT_DOUBLE_EQ(ResourceBoundNs(pipeline), 100);
  for (LinkTimes& link : pipeline.links) link.down.medium = link.up.medium = -1;
  EXPECT_DOUBLE_EQ(ResourceBoundNs(pipeline), 50);
  EXPECT_TRUE(BoundIsExact(pipeline));
}

// Stages that share a host's processors: whoever computes alone there has a whole one.
TEST(Simulator, AHostSharesItsProcessors) {
  SimulatedPipeline pipeline;
  pipeline.stages.assign(3, {100, 100, 100, false, 0});
  pipeline.links.assign(2, {{0, 1, 0, 0}, {0, 1, 0, 0}});
  pipeline.caps = {9, 6, 3};
  pipeline.host_processors = {2};
  EXPECT_DOUBLE_EQ(ResourceBoundNs(pipeline), 450);
  EXPECT_FALSE(BoundIsExact(pipeline));
  EXPECT_NEAR(*SteadyPeriodNs(pipeline), 450 / 0.85, 0.02 * 450) << "three of them take turns";
  pipeline.host_processors = {0.5};
  EXPECT_NEAR(*SteadyPeriodNs(pipeline), 1800 / 0.85, 0.02 * 1800);
  pipeline.host_processors = {3};
  EXPECT_TRUE(BoundIsExact(pipeline));
  EXPECT_NEAR(*SteadyPeriodNs(pipeline), 300, 1);
  // An even cut of uneven layers: the long stage is held up by no more than the others need.
  pipeline.host_processors = {2};
  pipeline.stages[0] = {50, 25, 25, false, 0};
  pipeline.stages[2] = {50, 25, 25, false, 0};
  EXPECT_DOUBLE_EQ(ResourceBoundNs(pipeline), 300);
  EXPECT_LT(*SteadyPeriodNs(pipeline), 300 / 0.9);
  // One micro-batch alone meets nobody.
  pipeline.micro_batches = 1;
  SimulatedPipeline apart = pipeline;
  for (StageTimes& stage : apart.stages) stage.host = -1;
  EXPECT_EQ(Simulate(pipeline)->total_ns, Simulate(apart)->total_ns);
  EXPECT_EQ(Simulate(pipeline)->compute_busy_ns, (std::vector<int64_t>{100, 300, 100}));
  // Half a processor is never idle but for the links' 4 ns, and loses some time.
  pipeline.host_processors = {0.5};
  EXPECT_GE(Simulate(pipeline)->total_ns, 2 * (100 + 300 + 100));
  EXPECT_LE(Simulate(pipeline)->total_ns, 2 * (100 + 300 + 100) / 0.85 + 4);
}

// What a host's stages compute, its processors compute; and no more of them is no slower.
TEST(Simulator, HostsDoWhatTheirProcessorsCan) {
  int slower = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    SimulatedPipeline pipeline =
        RandomPipeline(random, {.codecs = true, .hosts = 0, .largest_ns = 4000});
    const int64_t scarce_ns = Simulate(pipeline)->total_ns;
    double work = 0;
    for (const StageTimes& stage : pipeline.stages) {
      if (stage.host == 0) work += static_cast<double>(stage.total_ns() * pipeline.micro_batches);
    }
    EXPECT_GE(static_cast<double>(scarce_ns), work / pipeline.host_processors[0] - 1);
    pipeline.host_processors[0] = 5;
    const int64_t plenty_ns = Simulate(pipeline)->total_ns;
    slower += scarce_ns > plenty_ns ? 1 : 0;
    for (StageTimes& stage : pipeline.stages) stage.host = -1;
    EXPECT_EQ(plenty_ns, Simulate(pipeline)->total_ns) << "seed " << seed;
  }
  EXPECT_GT(slower, 50);
}

// Equal stages, caps N - i, links of half a stage's time each way: efficiency 0.6.
TEST(Simulator, PublishedCapsHideNoLinkTime) {
  SimulatedPipeline pipeline;
  pipeline.stages.assign(3, {100, 200, 0});
  pipeline.links.assign(2, {{0, 150, 0, 0}, {0, 150, 0, 0}});
  pipeline.caps = {3, 2, 1};
  EXPECT_DOUBLE_EQ(BoundNs(pipeline), (3 * 300 + 4 * 150) / 3.0);
  EXPECT_NEAR(*SteadyPeriodNs(pipeline), 500, 1);
  pipeline.caps = {5, 3, 1};
  EXPECT_NEAR(*SteadyPeriodNs(pipeline), 300, 1);
}

TEST(Simulator, RefusesWhatCannotBe) {
  SimulatedPipeline good;
  good.stages.assign(2, {1, 1, 1});
  good.links.resize(1);
  good.caps = {2, 1};
  good.micro_batches = 4;
  ASSERT_TRUE(Simulate(good).ok());
  const auto refused = [](SimulatedPipeline pipeline) {
    return std::string(Simulate(pipeline).status().message());
  };
  SimulatedPipeline bad = good;
  bad.caps = {1, 2};
  EXPECT_THAT(refused(bad), HasSubstr("caps"));
  bad = good;
  bad.deferred_weight_gradients = {0};
  EXPECT_THAT(refused(bad), HasSubstr("deferred weight-gradients of 1 stages"));
  bad.deferred_weight_gradients = {0, -1};
  EXPECT_THAT(refused(bad), HasSubstr("-1 deferred"));
  bad = good;
  bad.links.clear();
  EXPECT_THAT(refused(bad), HasSubstr("2 stages, 0 links"));
  bad = good;
  bad.stages[1].forward_ns = -1;
  EXPECT_THAT(refused(bad), HasSubstr("-1 ns"));
  bad = good;
  bad.micro_batches = 0;
  EXPECT_THAT(refused(bad), HasSubstr("0 micro-batches"));
  bad = good;
  bad.stages[0].forward_ns = int64_t{1} << 61;
  EXPECT_THAT(refused(bad), HasSubstr("too long"));
  bad = good;
  bad.stages[1].host = 0;
  EXPECT_THAT(refused(bad), HasSubstr("host 0 of 0"));
  bad.host_processors = {0};
  EXPECT_THAT(refused(bad), HasSubstr("0 processors"));
  bad.host_processors = {1e-12};
  EXPECT_THAT(refused(bad), HasSubstr("1e-12 processors, at least 0.001"));
  // As long as can be with a whole processor, so that with a hundredth it is too long.
  bad.host_processors = {1};
  bad.stages[1].forward_ns = (int64_t{1} << 61) / bad.micro_batches;
  EXPECT_EQ(refused(bad), "");
  bad.host_processors = {0.01};
  EXPECT_THAT(refused(bad), HasSubstr("too long"));
  EXPECT_THAT(refused(SimulatedPipeline{}), HasSubstr("no stage"));
}

}  // namespace
}  // namespace runnel::simulator_test
