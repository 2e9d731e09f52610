// Random plans, caps, times, rates, broken connections and lost stages: never stuck, and always the
// bytes of the calm run.

#include <cstdio>
#include <cstdlib>

#include "gtest/gtest.h"
#include "partition/schedule.h"
#include "tests/sim/hash_compute.h"
#include "tests/sim/simulated_pipeline.h"

namespace runnel::pipeline_property_test {
namespace {

struct Scenario {
  SimulatedPipelineOptions options;
  std::vector<HashCompute> compute;

  Scenario(const Scenario&) = delete;
  Scenario& operator=(const Scenario&) = delete;

  explicit Scenario(uint64_t seed) {
    const CounterRandom random(seed, RandomPurpose::kTest, 1, 0);
    uint64_t draws = 0;
    const auto below = [&](uint32_t bound) {
      return static_cast<int64_t>(random.Below(draws++, bound));
    };
    const int stages = static_cast<int>(1 + below(6));
    const bool sync = below(2) == 1;
    const int64_t micro_batches = sync ? 1 + below(5) : 1;
    options.batching = Batching::Create(20 + below(100), 4 + below(8), micro_batches, 1).value();
    options.plan.generation = Generation(1);
    options.plan.drains_each_step = sync;
    const bool defers = below(2) == 1;
    std::vector<int64_t> caps(static_cast<size_t>(stages));
    int64_t cap = 1;
    for (auto at = caps.rbegin(); at != caps.rend(); ++at) *at = cap += below(3);
    for (int i = 0; i < stages; ++i) {
      const int64_t deferred = defers ? below(4) : 0;
      options.plan.stages.push_back(
          {{Seat{DeviceId(i)}}, i, i, caps[static_cast<size_t>(i)], deferred});
      if (i > 0) options.plan.links.emplace_back();
    }
    int64_t step = 0;
    for (int i = 0; i < 4; ++i) {
      step += 1 + below(12);
      options.barriers.push_back(options.batching.FirstSequence(step).value());
    }
    options.samples = [](const MicroBatch& place) { return HashPayload(1, place.sequence); };
    options.labels = [](const MicroBatch& place) { return HashPayload(2, place.sequence); };
    for (int i = 0; i < stages; ++i)
      compute.emplace_back(HashOf(3, static_cast<uint64_t>(i)), i + 1 == stages);
    for (HashCompute& one : compute) options.compute.push_back(&one);
    options.clips = sync && below(2) == 1;
  }

  std::vector<uint64_t> Weights() const {
    std::vector<uint64_t> weights;
    for (const HashCompute& one : compute) weights.push_back(one.weights());
    return weights;
  }
};

// RUNNEL_SIM_SEEDS=N runs more of them.
uint64_t Seeds() {
  const char* seeds = std::getenv("RUNNEL_SIM_SEEDS");
  return seeds == nullptr ? 300 : std::strtoull(seeds, nullptr, 10);
}

TEST(PipelineProperty, TimingAndBrokenConnectionsChangeNothing) {
  int64_t breaks = 0, resent = 0;
  for (uint64_t seed = 1; seed <= Seeds(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scenario calm(seed);
    calm.options.max_action_ns = 0;
    const auto expected = RunSimulated(calm.options);
    ASSERT_TRUE(expected.ok()) << expected.status();

    Scenario slow(seed);
    slow.options.seed = seed + 1000;
    slow.options.shaping = {.megabits_per_second = seed % 3 == 0 ? 0.2 : 0,
                            .delay_ms = seed % 2 == 0 ? 3.0 : 0};
    const auto timed = RunSimulated(slow.options);
    ASSERT_TRUE(timed.ok()) << timed.status();
    EXPECT_EQ(slow.Weights(), calm.Weights());
    EXPECT_EQ(timed->actions, expected->actions);

    Scenario broken(seed);
    broken.options.seed = seed + 2000;
    broken.options.break_every_ns = 40'000'000;
    broken.options.shaping.delay_ms = 5;  // so that there is something on its way
    const auto faulty = RunSimulated(broken.options);
    ASSERT_TRUE(faulty.ok()) << faulty.status();
    EXPECT_EQ(broken.Weights(), calm.Weights());
    EXPECT_EQ(faulty->actions, expected->actions);
    breaks += faulty->breaks;
    resent += faulty->frames_resent;
  }
  std::printf("%llu seeds, %lld broken connections, %lld frames sent again\n",
              static_cast<unsigned long long>(Seeds()), static_cast<long long>(breaks),
              static_cast<long long>(resent));
  EXPECT_GT(resent, 0) << "the faults did not bite";
}

// Back to a cut, another generation, and everything after it again: as if nothing had happened.
TEST(PipelineProperty, LostStagesChangeNothing) {
  int64_t losses = 0;
  for (uint64_t seed = 1; seed <= Seeds(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scenario calm(seed);
    calm.options.max_action_ns = 0;
    const auto expected = RunSimulated(calm.options);
    ASSERT_TRUE(expected.ok()) << expected.status();

    Scenario lossy(seed);
    lossy.options.seed = seed + 3000;
    lossy.options.lose_every_ns = 200'000'000;
    lossy.options.break_every_ns = seed % 2 == 0 ? 40'000'000 : 0;
    lossy.options.shaping.delay_ms = 5;
    std::vector<HashCompute> cut;
    lossy.options.keep = [&] { cut = lossy.compute; };
    lossy.options.go_back = [&] { lossy.compute = cut; };
    const auto recovered = RunSimulated(lossy.options);
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    EXPECT_EQ(lossy.Weights(), calm.Weights());
    losses += recovered->losses;
  }
  std::printf("%llu seeds, %lld lost stages\n", static_cast<unsigned long long>(Seeds()),
              static_cast<long long>(losses));
  EXPECT_GT(losses, static_cast<int64_t>(Seeds())) << "the faults did not bite";
}

// The first stages' layers are frozen: they run forwards alone, as many ahead as their caps allow.
TEST(PipelineProperty, FrozenStagesChangeNothing) {
  for (uint64_t seed = 1; seed <= Seeds(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto frozen_in = [&](const Scenario& scenario) {
      return static_cast<int>(seed % scenario.compute.size());
    };
    Scenario calm(seed);
    const int frozen = frozen_in(calm);
    if (frozen == 0) continue;
    const std::vector<uint64_t> before = calm.Weights();
    calm.options.frozen_front = frozen;
    calm.options.max_action_ns = 0;
    const auto expected = RunSimulated(calm.options);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (int i = 0; i < frozen; ++i) {
      EXPECT_EQ(calm.Weights()[i], before[i]) << i;
      EXPECT_EQ(expected->actions[i].find_first_of("IW"), std::string::npos) << i;
    }
    EXPECT_NE(calm.Weights().back(), before.back());

    Scenario faulty(seed);
    faulty.options.seed = seed + 4000;
    faulty.options.frozen_front = frozen;
    faulty.options.lose_every_ns = seed % 2 == 0 ? 200'000'000 : 0;
    faulty.options.break_every_ns = 40'000'000;
    faulty.options.shaping.delay_ms = 5;
    std::vector<HashCompute> cut;
    faulty.options.keep = [&] { cut = faulty.compute; };
    faulty.options.go_back = [&] { faulty.compute = cut; };
    const auto recovered = RunSimulated(faulty.options);
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    EXPECT_EQ(faulty.Weights(), calm.Weights());
    if (recovered->losses == 0) {
      EXPECT_EQ(recovered->actions, expected->actions);
    }
  }
}

TEST(PipelineProperty, ActionsAreThoseOfTheSchedule) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scenario scenario(seed);
    if (scenario.options.plan.drains_each_step) continue;
    scenario.options.barriers = {scenario.options.batching.FirstSequence(20).value()};
    const auto result = RunSimulated(scenario.options);
    ASSERT_TRUE(result.ok()) << result.status();
    for (size_t i = 0; i < result->actions.size(); ++i) {
      std::string expected;
      const int64_t last = scenario.options.barriers[0];
      for (const ScheduledAction& action :
           StageActions(scenario.options.plan.stages[i].order(), last, last, 1)) {
        const std::string sequence = std::to_string(action.sequence);
        expected += action.action == Action::kForward
                        ? "F" + sequence + "/" + std::to_string(action.version) + " "
                    : action.action == Action::kInputGradient ? "I" + sequence + " "
                                                              : "W" + sequence + " ";
      }
      EXPECT_EQ(result->actions[i], expected) << "stage " << i;
    }
  }
}

}  // namespace
}  // namespace runnel::pipeline_property_test
