// The contract of a schedule, for every row of the table: orders that the plan alone gives, never
// stuck, no more kept than the stash bound, drained barriers, and for a schedule that drains after
// each step the hashes of the plain loop. Bytes: schedule_training_test.cc.

#include <algorithm>
#include <iostream>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "partition/schedule.h"
#include "partition/simulator.h"
#include "tests/sim/hash_compute.h"
#include "tests/sim/simulated_pipeline.h"

namespace runnel::schedule_conformance_test {
namespace {

constexpr int kStages = 6;
constexpr int64_t kMicroBatches = 9;

class ScheduleConformance : public ::testing::TestWithParam<std::string> {
 protected:
  const ScheduleRow& row() const { return **FindSchedule(GetParam()); }
  std::vector<StageOrder> Orders(int stages, int64_t micro_batches) const {
    return StageOrders(row().deferred, row().caps(stages, micro_batches));
  }
};

TEST_P(ScheduleConformance, CapsDoNotGrowAndDeferringDoesNotFallWithTheFirstCap) {
  for (int stages = 1; stages <= kStages; ++stages) {
    for (int64_t m = 1; m <= kMicroBatches; ++m) {
      SCOPED_TRACE(absl::StrCat(stages, " stages, M ", m));
      std::vector<int64_t> caps = row().caps(stages, m);
      ASSERT_EQ(caps.size(), static_cast<size_t>(stages));
      EXPECT_GE(caps.back(), 1);
      EXPECT_TRUE(std::is_sorted(caps.rbegin(), caps.rend()));
      std::vector<StageOrder> before = StageOrders(row().deferred, caps);
      ASSERT_EQ(before.size(), static_cast<size_t>(stages));
      for (int raised = 0; raised < 3; ++raised) {
        ++caps[0];
        const std::vector<StageOrder> orders = StageOrders(row().deferred, caps);
        for (int i = 0; i < stages; ++i) {
          EXPECT_GE(before[i].deferred_weight_gradients, 0);
          if (i == 0) continue;
          EXPECT_GE(orders[i].deferred_weight_gradients, before[i].deferred_weight_gradients);
        }
        before = orders;
      }
    }
  }
}

// One stage's actions over three steps and a part of one, drained every `drain_every`.
void CheckOrder(const StageOrder& order, int64_t m, int64_t drain_every) {
  const int64_t total = 3 * m + m / 2;
  StageProgress done;
  for (const ScheduledAction& action : StageActions(order, total, drain_every, m)) {
    int64_t& count = action.action == Action::kForward         ? done.forwards
                     : action.action == Action::kInputGradient ? done.input_gradients
                                                               : done.weight_gradients;
    // Ascending, each once.
    ASSERT_EQ(action.sequence, count);
    ++count;
    ASSERT_LE(done.input_gradients, done.forwards);
    ASSERT_LE(done.weight_gradients, done.input_gradients);
    ASSERT_LE(done.forwards - done.input_gradients, order.cap);
    ASSERT_LE(done.forwards - done.weight_gradients, order.cap + order.deferred_weight_gradients);
    if (drain_every == 0) continue;
    // Nothing of the next step before all of this one is done, so all of it uses the same weights.
    ASSERT_LE((done.forwards - 1) / drain_every, done.weight_gradients / drain_every);
    if (drain_every == m) {
      ASSERT_EQ(action.version, action.sequence / m);
    }
  }
  EXPECT_EQ(done.weight_gradients, total);
}

TEST_P(ScheduleConformance, EveryActionComesOnceInOrderWithinItsBounds) {
  for (int stages = 1; stages <= kStages; ++stages) {
    for (int64_t m = 1; m <= kMicroBatches; ++m) {
      const std::vector<StageOrder> orders = Orders(stages, m);
      for (int i = 0; i < stages; ++i) {
        SCOPED_TRACE(absl::StrCat("stage ", i, " of ", stages, ", M ", m));
        CheckOrder(orders[i], m, row().drains_each_step ? m : 0);
        CheckOrder(orders[i], m, row().drains_each_step ? m : 5);  // barriers
      }
    }
  }
}

SimulatedPipeline RandomTimes(const std::vector<StageOrder>& orders, std::mt19937_64& random) {
  const auto draw = [&](uint64_t bound) { return static_cast<int64_t>(random() % bound); };
  SimulatedPipeline pipeline;
  for (size_t i = 0; i < orders.size(); ++i) {
    pipeline.caps.push_back(orders[i].cap);
    pipeline.deferred_weight_gradients.push_back(orders[i].deferred_weight_gradients);
    pipeline.stages.push_back({draw(30), draw(30), draw(30)});
    if (i == 0) continue;
    pipeline.links.push_back({{draw(5), draw(20), draw(20), draw(5)},  //
                              {draw(5), draw(20), draw(20), draw(5)}});
  }
  // Half duplex, or a radio for all.
  const int64_t media = draw(3);
  for (size_t i = 0; media > 0 && i < pipeline.links.size(); ++i) {
    LinkTimes& link = pipeline.links[i];
    link.down.medium = link.up.medium = media == 1 ? static_cast<int32_t>(i) : 0;
  }
  return pipeline;
}

TEST_P(ScheduleConformance, NothingIsStuckWhateverTheTimes) {
  constexpr uint64_t kSeeds = 200;
  std::cout << "seeds 1.." << kSeeds << "\n";
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const int stages = 1 + static_cast<int>(random() % kStages);
    const int64_t m = 1 + static_cast<int64_t>(random() % kMicroBatches);
    const std::vector<StageOrder> orders = Orders(stages, m);
    SimulatedPipeline pipeline = RandomTimes(orders, random);
    pipeline.drain_every = row().drains_each_step ? m : static_cast<int64_t>(random() % 8);
    pipeline.micro_batches = 1 + static_cast<int64_t>(random() % 30);
    std::vector<std::vector<ScheduledAction>> seen(orders.size());
    const auto note = [&](int stage, Action action, int64_t sequence, int64_t) {
      seen[stage].push_back({action, sequence, 0});
    };
    ASSERT_TRUE(Simulate(pipeline, note).ok());
    for (size_t i = 0; i < orders.size(); ++i) {
      auto expected = StageActions(orders[i], pipeline.micro_batches, pipeline.drain_every, 1);
      for (ScheduledAction& action : expected) action.version = 0;
      ASSERT_EQ(seen[i], expected) << "stage " << i;
    }
  }
}

// The production stages over a virtual network, with hashes in place of arithmetic.
struct HashRun {
  SimulatedPipelineOptions options;
  std::vector<HashCompute> compute;

  HashRun(const HashRun&) = delete;
  HashRun& operator=(const HashRun&) = delete;

  HashRun(const ScheduleRow& row, uint64_t seed) {
    std::mt19937_64 random(seed);
    const int stages = 1 + static_cast<int>(random() % kStages);
    const int64_t m = row.drains_each_step ? 1 + static_cast<int64_t>(random() % 6) : 1;
    options.batching = Batching::Create(90, 12, m, 1).value();  // the last step of an epoch has 6
    options.plan.generation = Generation(1);
    options.plan.drains_each_step = row.drains_each_step;
    const std::vector<StageOrder> orders = StageOrders(row.deferred, row.caps(stages, m));
    for (int i = 0; i < stages; ++i) {
      options.plan.stages.push_back(
          {{Seat{DeviceId(i)}}, i, i, orders[i].cap, orders[i].deferred_weight_gradients});
      if (i > 0) options.plan.links.emplace_back();
      compute.emplace_back(HashOf(3, static_cast<uint64_t>(i)), i + 1 == stages);
    }
    for (HashCompute& one : compute) options.compute.push_back(&one);
    for (int64_t step = 0; step < 15;) {
      step += 1 + static_cast<int64_t>(random() % 7);
      options.barriers.push_back(options.batching.FirstSequence(step).value());
    }
    options.samples = [](const MicroBatch& place) { return HashPayload(1, place.sequence); };
    options.labels = [](const MicroBatch& place) { return HashPayload(2, place.sequence); };
  }

  std::vector<uint64_t> Weights() const {
    std::vector<uint64_t> weights;
    for (const HashCompute& one : compute) weights.push_back(one.weights());
    return weights;
  }

  // One micro-batch after the other through all stages and back.
  std::vector<uint64_t> PlainLoop() {
    const int last = static_cast<int>(compute.size()) - 1;
    for (int64_t sequence = 0; sequence < options.barriers.back(); ++sequence) {
      const MicroBatch place = options.batching.Locate(Sequence(sequence));
      Payload tensor = options.samples(place);
      for (HashCompute& one : compute) {
        tensor = one.Forward(place, tensor, options.labels(place))->tensor;
      }
      for (int i = last; i >= 0; --i) tensor = compute[i].InputGradient(place, tensor)->tensor;
      for (HashCompute& one : compute) {
        EXPECT_TRUE(one.WeightGradient(place, place.last_in_step).ok());
      }
    }
    return Weights();
  }
};

TEST_P(ScheduleConformance, ProductionStagesComeToTheSameHashesWhateverHappens) {
  constexpr uint64_t kSeeds = 60;
  std::cout << "seeds 1.." << kSeeds << "\n";
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    HashRun calm(row(), seed);
    calm.options.max_action_ns = 0;
    const auto expected = RunSimulated(calm.options);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (size_t i = 0; i < calm.compute.size(); ++i) {
      const StageOrder order = calm.options.plan.stages[i].order();
      EXPECT_LE(calm.compute[i].most_in_flight(), order.cap + order.deferred_weight_gradients);
    }
    HashRun broken(row(), seed);
    broken.options.seed = seed + 1000;
    broken.options.break_every_ns = 60'000'000;
    broken.options.shaping.delay_ms = 1 + static_cast<double>(seed % 5);  // something on its way
    const auto faulty = RunSimulated(broken.options);
    ASSERT_TRUE(faulty.ok()) << faulty.status();
    EXPECT_EQ(faulty->actions, expected->actions);
    EXPECT_EQ(broken.Weights(), calm.Weights());
    if (row().drains_each_step) {
      EXPECT_EQ(calm.Weights(), HashRun(row(), seed).PlainLoop());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ScheduleConformance, ::testing::ValuesIn(ScheduleNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace runnel::schedule_conformance_test
