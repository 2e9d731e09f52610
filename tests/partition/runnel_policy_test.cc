// The policies of the papers and ours, against oracles that try everything.

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/pipeline_model.h"
#include "partition/policies/runnel_search.h"
#include "partition/policy.h"
#include "predictor/cost/measured_cost.h"
#include "tests/base/codecs.h"

namespace runnel::runnel_policy_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A random pipeline with its costs.
class Case {
 public:
  Case(int layers, int devices, std::mt19937& random) : random_(random) {
    for (int device = 0; device < devices; ++device) {
      std::vector<double>& row = seconds_.emplace_back();
      const double speed = Draw(1, 4);
      for (int layer = 0; layer < layers; ++layer) row.push_back(Draw(1, 20) / speed * 1e-3);
    }
    cost_ = *MeasuredCost::ByLayer(seconds_);
    model.compute = &*cost_;
    model.devices.resize(devices);
    model.speeds.resize(devices);
    for (auto& row : model.speeds) {
      for (int to = 0; to < devices; ++to)
        row.push_back({LinkRate::Mbps(Draw(1, 40)), Draw(0, 4) * 1e-3});
    }
    model.codecs.resize(2);
    for (int layer = 0; layer < layers; ++layer) {
      const int64_t bytes = 1000 * static_cast<int64_t>(Draw(1, 30));
      model.raw_bytes.push_back(bytes);
      model.codecs[0].down_bytes.push_back(bytes);
      model.codecs[0].up_bytes.push_back(bytes);
      model.codecs[1].down_bytes.push_back(bytes / 16);
      model.codecs[1].up_bytes.push_back(bytes / 4);
      model.memory.push_back({static_cast<int64_t>(Draw(1, 50)), static_cast<int64_t>(Draw(1, 20)),
                              static_cast<int64_t>(Draw(1, 20))});
    }
    model.codecs[1].forward = model.codecs[1].backward = Codecs("small");
    model.max_cap = 5;
    request.layers = layers;
    request.devices = devices;
    request.compute = &*cost_;
    request.pipeline = &model;
    request.link_seconds = [this](int layer, int from, Direction direction) {
      return WayCost(model, model.default_codec, layer, from, from + 1, direction).total();
    };
  }
  Case(const Case&) = delete;

  double Draw(int low, int high) {
    return static_cast<double>(std::uniform_int_distribution<int>(low, high)(random_));
  }
  // Coding and frames take time from the computation of some devices.
  void ShareProcessors() {
    model.input_bytes = 1000 * static_cast<int64_t>(Draw(1, 30));
    model.label_bytes = 100;
    model.codecs[1].forward_works = model.codecs[1].backward_works = true;
    for (DeviceCost& device : model.devices) {
      device.shares_processor = Draw(0, 2) > 0;
      // A codec lane that is busy by itself is only bounded by the closed form.
      device.codec_seconds_per_byte = device.shares_processor ? Draw(0, 3) * 1e-7 : 0;
      device.micro_batch_seconds = Draw(0, 3) * 1e-3;
      device.network.frame_seconds = Draw(0, 3) * 1e-3;
      device.network.byte_seconds = Draw(0, 2) * 1e-7;
      device.feed = {device.network.frame_seconds, Draw(0, 2) * 1e-7};
    }
  }
  Placement Given(const Partition& partition) const {
    Placement placement;
    for (int i = 0; i < request.devices; ++i) {
      placement.order.push_back(i);
      placement.caps.push_back(request.devices - i);
    }
    placement.last_layer = partition.placement.last_layer;
    placement.codecs.assign(request.devices - 1, model.default_codec);
    return placement;
  }

  PipelineModel model;
  PartitionRequest request;

 private:
  std::mt19937& random_;
  std::vector<std::vector<double>> seconds_;
  std::optional<MeasuredCost> cost_;
};

absl::StatusOr<Partition> PlanBy(absl::string_view policy, const PartitionRequest& request) {
  return (*FindPolicy(policy))->plan(request);
}

// Every pair of codecs on every link.
void ForEachCodecs(const PipelineModel& model, Placement& tried, const std::function<void()>& act) {
  tried.codecs.assign(tried.order.size() - 1, 0);
  while (true) {
    act();
    size_t link = 0;
    while (link < tried.codecs.size() &&
           ++tried.codecs[link] == static_cast<int>(model.codecs.size())) {
      tried.codecs[link++] = 0;
    }
    if (link == tried.codecs.size()) return;
  }
}

// Every order, subset, cut, codec and cap.
double LeastCharge(const PipelineModel& model) {
  double least = std::numeric_limits<double>::infinity();
  Placement tried;
  const std::function<void(int, std::vector<bool>&)> stage = [&](int first,
                                                                 std::vector<bool>& used) {
    for (size_t device = 0; device < model.devices.size(); ++device) {
      if (used[device] || (tried.order.empty() != (device == 0))) continue;
      used[device] = true;
      tried.order.push_back(static_cast<int>(device));
      for (int last = first; last < model.layers(); ++last) {
        tried.last_layer.push_back(last);
        const int64_t highest = tried.caps.empty() ? model.max_cap : tried.caps.back();
        for (int64_t cap = 1; cap <= highest; ++cap) {
          tried.caps.push_back(cap);
          if (last + 1 < model.layers()) {
            stage(last + 1, used);
          } else {
            ForEachCodecs(model, tried, [&] {
              if (!FitsMemory(model, tried)) return;
              const double period = BoundNs(ToPipeline(model, tried)) * 1e-9;
              least = std::min(least, ChargedPeriod(model, tried, period));
            });
          }
          tried.caps.pop_back();
        }
        tried.last_layer.pop_back();
      }
      tried.order.pop_back();
      used[device] = false;
    }
  };
  std::vector<bool> used(model.devices.size(), false);
  stage(0, used);
  return least;
}

TEST(RunnelPolicy, EqualsTryingEverything) {
  int refused = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    Case c(3 + seed % 3, 1 + seed % 3, random);
    if (seed % 2 == 1) {
      for (DeviceCost& device : c.model.devices) {
        device.memory_limit_bytes = 1000 * static_cast<int64_t>(c.Draw(1, 60));
      }
    }
    if (seed % 4 >= 2) c.ShareProcessors();
    const double least = LeastCharge(c.model);
    const absl::StatusOr<Partition> found = PlanBy("runnel", c.request);
    if (!std::isfinite(least)) {
      EXPECT_EQ(found.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(found.status().message(), HasSubstr("memory"));
      ++refused;
      continue;
    }
    ASSERT_TRUE(found.ok()) << found.status();
    const Placement placement = found->placement;
    EXPECT_TRUE(FitsMemory(c.model, placement));
    EXPECT_EQ(placement.order[0], 0);
    for (int64_t cap : placement.caps) EXPECT_LE(cap, c.model.max_cap);
    const double period = BoundNs(ToPipeline(c.model, placement)) * 1e-9;
    EXPECT_NEAR(ChargedPeriod(c.model, placement, period), least, 3e-4 * least);
    EXPECT_NEAR(found->bottleneck_seconds, period, 3e-3 * period);
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 20);
}

TEST(PipelineModel, WhatADeviceDoesBesidesComputingTakesFromItsComputation) {
  std::mt19937 random(1);
  Case c(2, 2, random);
  const Placement placement{{0, 1}, {0, 1}, {2, 1}, {1}};
  const SimulatedPipeline apart = ToPipeline(c.model, placement);
  c.model.input_bytes = 5000;
  c.model.label_bytes = 100;
  c.model.raw_bytes[0] = 16000;
  c.model.codecs[1].down_bytes[0] = 1000;
  c.model.codecs[1].up_bytes[0] = 4000;
  c.model.codecs[1].forward_works = c.model.codecs[1].backward_works = true;
  for (DeviceCost& device : c.model.devices) {
    device.shares_processor = true;
    device.codec_seconds_per_byte = 1e-9;  // 16 us a tensor
    device.micro_batch_seconds = 2e-3;
    device.network = {1e-3, 1e-7};
    device.feed = {1e-3, 1e-6};
  }
  const SimulatedPipeline shared = ToPipeline(c.model, placement);
  // Its own, samples sent and received, labels sent; an activation coded and sent; a gradient
  // received.
  const auto more = [&](size_t stage, int64_t StageTimes::*part) {
    return shared.stages[stage].*part - apart.stages[stage].*part;
  };
  EXPECT_EQ(more(0, &StageTimes::weight_gradient_ns),
            2'000'000 + 2 * 6'000'000 + 1'100'000 + 1'100'000 + 1'400'000);
  EXPECT_EQ(more(0, &StageTimes::forward_ns), 16'000);
  EXPECT_EQ(more(0, &StageTimes::input_gradient_ns), 16'000);
  // Its own, labels and an activation received; a gradient sent.
  EXPECT_EQ(more(1, &StageTimes::weight_gradient_ns),
            2'000'000 + 1'100'000 + 1'100'000 + 1'400'000);
  EXPECT_EQ(more(1, &StageTimes::forward_ns), 16'000);
  EXPECT_EQ(more(1, &StageTimes::input_gradient_ns), 16'000);
  EXPECT_EQ(shared.links[0].down.encode_ns + shared.links[0].down.decode_ns, 0);
  // One device keeps a lane for its codecs.
  c.model.devices[1].shares_processor = false;
  const SimulatedPipeline one = ToPipeline(c.model, placement);
  EXPECT_EQ(one.stages[1].total_ns(), apart.stages[1].total_ns());
  EXPECT_EQ(one.links[0].down.encode_ns, 0);
  EXPECT_EQ(one.links[0].down.decode_ns, 16'000);
}

// Cuts and codecs of three devices in a row that share a radio: with room for any cap the shortest
// period is the least of what lanes and air allow.
TEST(OrderSearch, AirIsABudgetOfTheWholeOrder) {
  int bound_by_air = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    Case c(6, 3, random);
    for (auto& row : c.model.speeds) {
      for (LinkSpeed& speed : row) {
        speed.medium = 0;
        speed.rate = speed.rate * 0.4;
        speed.hops = 1 + static_cast<int>(seed % 2);
      }
    }
    double least = std::numeric_limits<double>::infinity();
    bool is_air = false;
    for (int first = 0; first < 4; ++first) {
      for (int second = first + 1; second < 5; ++second) {
        Placement tried = {{0, 1, 2}, {first, second, 5}, {1, 1, 1}, {}};
        ForEachCodecs(c.model, tried, [&] {
          const SimulatedPipeline pipeline = ToPipeline(c.model, tried);
          const double bound = ResourceBoundNs(pipeline) * 1e-9;
          if (bound >= least) return;
          least = bound;
          const auto slowest = std::max_element(
              pipeline.stages.begin(), pipeline.stages.end(),
              [](const StageTimes& a, const StageTimes& b) { return a.total_ns() < b.total_ns(); });
          is_air = bound > static_cast<double>(slowest->total_ns()) * 1e-9 * 1.001;
        });
      }
    }
    bound_by_air += is_air ? 1 : 0;
    policies::SearchTables tables(c.model, policies::AllEnds(c.model));
    policies::OrderSearch search(tables, {0, 1, 2});
    EXPECT_FALSE(search.Reach(least * 0.999, 1000).has_value());
    const std::optional<Placement> reached = search.Reach(least * 1.001, 1000);
    ASSERT_TRUE(reached.has_value());
    EXPECT_LE(ResourceBoundNs(ToPipeline(c.model, *reached)) * 1e-9, least * 1.0011);
  }
  EXPECT_GT(bound_by_air, 5);
}

TEST(RunnelPolicy, IsChargedNoMoreThanOthers) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    Case c(4 + seed % 9, 1 + seed % 4, random);
    if (seed % 3 == 0) {
      for (auto& row : c.model.speeds) {
        for (LinkSpeed& speed : row) speed.medium = 0;
      }
    }
    c.model.max_cap = 16;
    if (seed % 4 == 0) c.model.drain_every = 4;
    if (seed % 4 == 1) c.model.barrier_every = 1 + seed;
    c.model.codecs[1].forward_works = c.model.codecs[1].backward_works = seed % 5 == 0;
    for (DeviceCost& device : c.model.devices) device.codec_seconds_per_byte = 1e-7;
    c.model.default_codec = static_cast<int>(seed % 2);
    if (seed % 7 == 0) c.ShareProcessors();
    const absl::StatusOr<Partition> ours = PlanBy("runnel", c.request);
    ASSERT_TRUE(ours.ok()) << ours.status();
    const double runnel = *SimulatedPeriod(c.model, ours->placement);
    EXPECT_EQ(runnel, ours->bottleneck_seconds);
    const double charged = ChargedPeriod(c.model, ours->placement, runnel);
    for (const char* policy : {"accept", "dp", "ftpipehd+", "uniform"}) {
      const absl::StatusOr<Partition> theirs = PlanBy(policy, c.request);
      ASSERT_TRUE(theirs.ok()) << theirs.status();
      const Placement placement = c.Given(*theirs);
      const double period = *SimulatedPeriod(c.model, placement);
      EXPECT_LE(charged, ChargedPeriod(c.model, placement, period) * (1 + 1e-12)) << policy;
    }
    const Placement alone = {{0}, {c.request.layers - 1}, {1}, {}};
    EXPECT_LE(runnel, *SimulatedPeriod(c.model, alone) * (1 + 1e-12));
  }
}

// Equation 10 with 2 T_c, written out.
double AcceptObjective(const PartitionRequest& request, const std::vector<int>& last_layer) {
  double slowest = 0;
  for (int i = 0, first = 0; i < request.devices; first = last_layer[i++] + 1) {
    slowest = std::max(slowest, request.compute->StageSeconds(i, first, last_layer[i]));
    if (i + 1 < request.devices) {
      slowest = std::max(slowest, 2 * request.link_seconds(last_layer[i], i, Direction::kForward));
    }
  }
  return slowest;
}

TEST(AcceptPolicy, IsTheBestCutAndNeverWorseThanFtpipehd) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    Case c(4 + seed % 5, 1 + seed % 4, random);
    const absl::StatusOr<Partition> accept = PlanBy("accept", c.request);
    const absl::StatusOr<Partition> ftpipehd = PlanBy("ftpipehd+", c.request);
    ASSERT_TRUE(accept.ok() && ftpipehd.ok()) << accept.status() << ftpipehd.status();
    EXPECT_EQ(accept->bottleneck_seconds, AcceptObjective(c.request, accept->placement.last_layer));
    EXPECT_LE(AcceptObjective(c.request, accept->placement.last_layer),
              AcceptObjective(c.request, ftpipehd->placement.last_layer));
    // Sizes that are alike both ways: the oracle of `dp` is that of `accept`.
    PartitionRequest alike = c.request;
    alike.link_seconds = [&](int layer, int from, Direction) {
      return c.request.link_seconds(layer, from, Direction::kForward);
    };
    EXPECT_EQ(PlanBy("brute_force", alike)->bottleneck_seconds, accept->bottleneck_seconds);
    EXPECT_THAT(accept->placement.caps, IsEmpty());
  }
}

// Where every worker is central times a constant, the ratio is no estimate but the truth.
TEST(FtpipehdPolicy, IsExactWhereRatiosAre) {
  const auto cost = MeasuredCost::ByLayer({{1, 2, 3, 4}, {2, 4, 6, 8}});
  PartitionRequest request{4, 2, &*cost, [](int, int, Direction) { return 0.0; }};
  EXPECT_EQ(PlanBy("ftpipehd+", request)->placement.last_layer,
            PlanBy("accept", request)->placement.last_layer);
}

// AccEPT 2.3: how fast a worker is on the layers that it has is taken for its speed on all layers.
// Device 1 is slow on layer 2 alone: as soon as that layer is gone the device seems as fast as the
// other one, and gets the layer again.
TEST(FtpipehdPolicy, IsMisledByLayersOfAnotherShape) {
  const auto cost = MeasuredCost::ByLayer({{1, 1, 1, 1}, {1, 1, 8, 1}});
  PartitionRequest request{4, 2, &*cost, [](int, int, Direction) { return 0.0; }};
  const absl::StatusOr<Partition> accept = PlanBy("accept", request);
  const absl::StatusOr<Partition> ftpipehd = PlanBy("ftpipehd+", request);
  ASSERT_TRUE(accept.ok() && ftpipehd.ok()) << accept.status() << ftpipehd.status();
  EXPECT_THAT(accept->placement.last_layer, ElementsAre(2, 3));
  EXPECT_THAT(ftpipehd->placement.last_layer, ElementsAre(1, 3));
  EXPECT_EQ(AcceptObjective(request, accept->placement.last_layer), 3);
  EXPECT_EQ(AcceptObjective(request, ftpipehd->placement.last_layer), 9);
}

// As published: the even cut first, then what the cut that holds shows. On the same devices the two
// cuts take turns for ever.
TEST(FtpipehdPolicy, AsPublishedItCutsEvenlyFirstAndMayNeverSettle) {
  const auto cost = MeasuredCost::ByLayer({{1, 1, 1, 1}, {1, 1, 8, 1}});
  PartitionRequest request{4, 2, &*cost, [](int, int, Direction) { return 0.0; }};
  const PolicyRow* row = *FindPolicy("ftpipehd");
  EXPECT_THAT(row->plan({.layers = 4, .devices = 2})->placement.last_layer, ElementsAre(1, 3));
  // Nine for two layers: 4.5 times central's time for whatever it gets.
  const absl::StatusOr<Partition> second = row->next(request, {1, 3});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(second->placement.last_layer, ElementsAre(2, 3));
  EXPECT_EQ(second->bottleneck_seconds, 4.5);
  // There it takes as long as central.
  EXPECT_THAT(row->next(request, {2, 3})->placement.last_layer, ElementsAre(1, 3));
  EXPECT_THAT(row->next(request, {2, 3})->placement.caps, IsEmpty()) << "the schedule's: N - i";
  for (const std::vector<int>& wrong : {std::vector<int>{3, 3}, {1, 2}, {3}, {-1, 3}}) {
    EXPECT_EQ(row->next(request, wrong).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

// A barrier every K micro-batches: the pipeline fills and drains, and waits in between.
TEST(PipelineModel, PeriodsCountBarriers) {
  std::mt19937 random(3);
  Case c(6, 3, random);
  c.model.codecs.resize(1);
  const Placement placement = {{0, 1, 2}, {1, 3, 5}, {4, 2, 1}, {0, 0}};
  const double steady = *SimulatedPeriod(c.model, placement);
  c.model.barrier_pause_seconds = 0.05;
  double before = 0;
  for (const int64_t every : {1, 7, 60, 100, 5000}) {
    c.model.barrier_every = every;
    SimulatedPipeline pipeline = ToPipeline(c.model, placement);
    pipeline.micro_batches = every;
    const double whole = (static_cast<double>(Simulate(pipeline)->total_ns) * 1e-9 + 0.05) /
                         static_cast<double>(every);
    const double period = *SimulatedPeriod(c.model, placement);
    EXPECT_NEAR(period, whole, 1e-4 * whole) << every;
    EXPECT_GT(period, steady);
    if (before > 0) {
      EXPECT_LT(period, before);
    }
    before = period;
  }
}

TEST(PipelineModel, DevicesAndCapsAreCharged) {
  std::mt19937 random(3);
  Case c(6, 3, random);
  const Placement three = {{0, 1, 2}, {1, 3, 5}, {5, 2, 1}, {0, 0}};
  EXPECT_DOUBLE_EQ(ChargedPeriod(c.model, three, 2), 2 * 1.7 * 1.04 * 1.04);
  // The first step costs half, whatever the number of devices.
  EXPECT_DOUBLE_EQ(ChargedPeriod(c.model, {{0, 1, 2}, {1, 3, 5}, {2, 2, 1}, {0, 0}}, 2),
                   2 * 1.1 * 1.04 * 1.04);
  EXPECT_DOUBLE_EQ(ChargedPeriod(c.model, {{0}, {5}, {1}, {}}, 2), 2);
  c.model.step_every = 2;
  EXPECT_DOUBLE_EQ(ChargedPeriod(c.model, three, 2), 2 * 1.3 * 1.04 * 1.04);
  // A synchronous step has no stale weights.
  c.model.drain_every = 8;
  EXPECT_DOUBLE_EQ(ChargedPeriod(c.model, three, 2), 2 * 1.04 * 1.04);
}

TEST(PipelineModel, LossesOfCodecsAreCharged) {
  std::mt19937 random(3);
  Case c(6, 3, random);
  c.model.drain_every = 8;
  c.model.codecs[1].noise = 0.1;
  c.model.codecs[1].lossy_directions = 2;
  const Placement one = {{0, 1, 2}, {1, 3, 5}, {3, 2, 1}, {0, 1}};
  const Placement both = {{0, 1, 2}, {1, 3, 5}, {3, 2, 1}, {1, 1}};
  EXPECT_DOUBLE_EQ(AddedNoise(c.model, one), 0.1);
  EXPECT_DOUBLE_EQ(AddedNoise(c.model, both), 0.2);
  EXPECT_DOUBLE_EQ(ChargedPeriod(c.model, one, 2), 2 * 1.04 * 1.04 * 1.12);
  EXPECT_DOUBLE_EQ(ChargedPeriod(c.model, both, 2), 2 * 1.04 * 1.04 * 1.24);
  c.model.noise_budget = 0.15;
  EXPECT_DOUBLE_EQ(ChargedPeriod(c.model, one, 2), 2 * 1.04 * 1.04 * 1.12);
  EXPECT_EQ(ChargedPeriod(c.model, both, 2), std::numeric_limits<double>::infinity());
}

TEST(PipelineModel, NoiseIsThatOfThePlaceOfTheLink) {
  std::mt19937 random(3);
  Case c(6, 3, random);
  c.model.codecs[1].noise = 0.1;
  c.model.codecs[1].noise_behind = {0.01, 0.02, 0.03, 0.04, 0.05, 0.06};
  ASSERT_TRUE(CheckPipelineModel(c.model).ok());
  const Placement both = {{0, 1, 2}, {1, 3, 5}, {3, 2, 1}, {1, 1}};
  EXPECT_THAT(NoiseByLink(c.model, both), ElementsAre(0.02, 0.04));
  EXPECT_DOUBLE_EQ(AddedNoise(c.model, both), 0.06);
  EXPECT_THAT(NoiseByLink(c.model, {{0, 1, 2}, {0, 4, 5}, {3, 2, 1}, {1, 0}}),
              ElementsAre(0.01, 0.0));
  c.model.codecs[1].noise_behind.pop_back();
  EXPECT_FALSE(CheckPipelineModel(c.model).ok());
  c.model.codecs[1].noise_behind.push_back(-1);
  EXPECT_FALSE(CheckPipelineModel(c.model).ok());
}

// The budget admits the codec at one place alone: links there may have it, others may not.
TEST(RunnelPolicy, CodesWhereThatHardlyAddsNoise) {
  int lossy = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    Case c(6, 2 + seed % 3, random);
    for (auto& row : c.model.speeds) {
      for (LinkSpeed& speed : row) speed.rate = speed.rate * 0.05;
    }
    const int place = static_cast<int>(seed % 5);
    c.model.codecs[1].noise = 1;
    c.model.codecs[1].noise_behind.assign(6, 1);
    c.model.codecs[1].noise_behind[static_cast<size_t>(place)] = 0.01;
    c.model.codecs[1].lossy_directions = 2;
    c.model.noise_budget = 0.05;
    const absl::StatusOr<Partition> found = PlanBy("runnel", c.request);
    ASSERT_TRUE(found.ok()) << found.status();
    const Placement& placement = found->placement;
    for (size_t link = 0; link < placement.codecs.size(); ++link) {
      if (placement.codecs[link] == 0) continue;
      EXPECT_EQ(placement.last_layer[link], place);
      ++lossy;
    }
  }
  EXPECT_GT(lossy, 10);
}

// Links that have time lose nothing, whatever bytes that would save.
TEST(RunnelPolicy, LosesSomethingOnlyWhereThatPays) {
  int exact = 0, lossy = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    Case c(6, 2 + seed % 2, random);
    for (auto& row : c.model.speeds) {
      for (LinkSpeed& speed : row) speed.rate = speed.rate * (seed % 4 < 2 ? 0.2 : 5);
    }
    c.model.codecs[1].noise = 0.08;
    c.model.codecs[1].lossy_directions = 2;
    const absl::StatusOr<Partition> found = PlanBy("runnel", c.request);
    ASSERT_TRUE(found.ok()) << found.status();
    const Placement& placement = found->placement;
    for (size_t link = 0; link < placement.codecs.size(); ++link) {
      Placement other = placement;
      other.codecs[link] = 1 - placement.codecs[link];
      (placement.codecs[link] == 0 ? exact : lossy) += 1;
      if (!FitsMemory(c.model, other)) continue;
      EXPECT_LE(ChargedPeriod(c.model, placement, *SimulatedPeriod(c.model, placement)),
                ChargedPeriod(c.model, other, *SimulatedPeriod(c.model, other)) * 1.001);
    }
  }
  EXPECT_GT(exact, 10);
  EXPECT_GT(lossy, 10);
}

// On slow links the budget decides.
TEST(RunnelPolicy, KeepsToTheNoiseBudget) {
  int lossy = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    Case c(6, 2 + seed % 3, random);
    for (auto& row : c.model.speeds) {
      for (LinkSpeed& speed : row) speed.rate = speed.rate * 0.05;
    }
    c.model.codecs[1].noise = 0.04;
    c.model.codecs[1].lossy_directions = 2;
    for (const double budget : {0.0, 0.05, 0.1}) {
      c.model.noise_budget = budget;
      const absl::StatusOr<Partition> found = PlanBy("runnel", c.request);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_LE(AddedNoise(c.model, found->placement), budget);
      lossy += AddedNoise(c.model, found->placement) > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(lossy, 10);
}

// No codec is exact, and what each adds differs by place: every cut has a plan, and the quietest
// place is none for all links at once. Long models are searched in blocks first.
TEST(RunnelPolicy, PlansWhereEveryCodecLosesSomething) {
  for (uint32_t seed = 0; seed < 48; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const int layers = seed % 8 == 7 ? 60 : 6;
    Case c(layers, 4, random);
    if (seed % 2 == 1) c.model.codecs.pop_back();
    c.model.default_codec = 0;
    double most = 0;
    for (CodecCost& codec : c.model.codecs) {
      codec.lossy_directions = 2;
      for (int layer = 0; layer < layers; ++layer)
        codec.noise_behind.push_back(c.Draw(1, 100) * 1e-3);
      // Behind the last layer there is no link.
      if (seed % 4 >= 2) codec.noise_behind.back() = 0;
      for (const double noise : codec.noise_behind) most = std::max(most, noise);
    }
    for (DeviceCost& device : c.model.devices) {
      if (seed % 3 == 0) device.memory_limit_bytes = 1'000'000;
    }
    if (seed % 5 == 0) c.model.noise_budget = 3 * most;
    if (seed % 5 == 1) c.model.noise_budget = 1e-4;
    const absl::StatusOr<Partition> found = PlanBy("runnel", c.request);
    ASSERT_TRUE(found.ok()) << found.status();
    const Placement& placement = found->placement;
    const auto charge = [&](const Placement& one) {
      return ChargedPeriod(c.model, one, *SimulatedPeriod(c.model, one));
    };
    EXPECT_LE(charge(placement), charge({{0}, {layers - 1}, {1}, {}}) * (1 + 1e-12));
    EXPECT_LE(AddedNoise(c.model, placement), c.model.noise_budget);
    const absl::StatusOr<Partition> uniform = PlanBy("uniform", c.request);
    ASSERT_TRUE(uniform.ok()) << uniform.status();
    EXPECT_LE(charge(placement), charge(c.Given(*uniform)) * (1 + 1e-12));
  }
}

TEST(RunnelPolicy, LeavesOutADeviceThatOnlyCosts) {
  std::mt19937 random(1);
  Case c(6, 3, random);
  const auto cost = MeasuredCost::ByLayer(
      {{1, 1, 1, 1, 1, 1}, {9e3, 9e3, 9e3, 9e3, 9e3, 9e3}, {1, 1, 1, 1, 1, 1}});
  c.model.compute = c.request.compute = &*cost;
  const absl::StatusOr<Partition> found = PlanBy("runnel", c.request);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->placement.order, ElementsAre(0, 2));
  EXPECT_THAT(found->placement.last_layer, ElementsAre(2, 5));
}

TEST(RunnelPolicy, NeedsCosts) {
  EXPECT_THAT(PlanBy("runnel", {3, 2, nullptr, nullptr}).status().message(), HasSubstr("profile"));
  std::mt19937 random(1);
  Case c(3, 2, random);
  c.model.speeds.pop_back();
  EXPECT_THAT(PlanBy("runnel", c.request).status().message(), HasSubstr("links"));
}

}  // namespace
}  // namespace runnel::runnel_policy_test
