#include "partition/policy.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "predictor/cost/measured_cost.h"

namespace runnel::policy_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Costs of a random pipeline. Small whole numbers, so that ties are frequent and sums exact.
struct Costs {
  std::vector<std::vector<double>> compute;  // [device][layer]
  std::vector<std::vector<double>> down;     // [device][layer]
  std::vector<std::vector<double>> up;

  LinkSecondsFn link() const {
    return [this](int layer, int from, Direction direction) {
      return direction == Direction::kForward ? down[from][layer] : up[from][layer];
    };
  }
};

Costs RandomCosts(int layers, int devices, uint64_t range, std::mt19937_64& random) {
  const auto table = [&](uint64_t top) {
    std::vector<std::vector<double>> rows(devices, std::vector<double>(layers));
    for (auto& row : rows) {
      for (double& value : row) value = static_cast<double>(random() % top);
    }
    return rows;
  };
  return {table(range), table(2 * range), table(2 * range)};
}

// Equation 10's objective written out once more, without any code of the library.
double Objective(const Costs& costs, const std::vector<int>& last_layer) {
  double slowest = 0;
  int first = 0;
  for (size_t device = 0; device < last_layer.size(); ++device) {
    double stage = 0;
    for (int l = first; l <= last_layer[device]; ++l) stage += costs.compute[device][l];
    slowest = std::max(slowest, stage);
    if (device + 1 < last_layer.size()) {
      const int l = last_layer[device];
      slowest = std::max(slowest, costs.down[device][l] + costs.up[device][l]);
    }
    first = last_layer[device] + 1;
  }
  return slowest;
}

absl::StatusOr<Partition> Plan(absl::string_view policy, const PartitionRequest& request) {
  absl::StatusOr<const PolicyRow*> row = FindPolicy(policy);
  EXPECT_TRUE(row.ok()) << row.status();
  return (*row)->plan(request);
}

TEST(Policy, DynamicProgrammingEqualsBruteForce) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const int layers = 1 + static_cast<int>(random() % 8);
    const int devices = 1 + static_cast<int>(random() % std::min(layers, 4));
    const Costs costs = RandomCosts(layers, devices, seed % 3 == 0 ? 4 : 100, random);
    const auto compute = MeasuredCost::ByLayer(costs.compute);
    ASSERT_TRUE(compute.ok());
    const PartitionRequest request{layers, devices, &*compute, costs.link()};
    const auto fast = Plan("dp", request);
    const auto slow = Plan("brute_force", request);
    ASSERT_TRUE(fast.ok() && slow.ok()) << fast.status() << slow.status();
    ASSERT_EQ(fast->bottleneck_seconds, slow->bottleneck_seconds);
    for (const Partition* partition : {&*fast, &*slow}) {
      ASSERT_EQ(partition->placement.last_layer.size(), static_cast<size_t>(devices));
      ASSERT_EQ(partition->placement.last_layer.back(), layers - 1);
      int previous = -1;
      for (int last : partition->placement.last_layer) {
        ASSERT_GT(last, previous);
        previous = last;
      }
      ASSERT_EQ(partition->bottleneck_seconds, Objective(costs, partition->placement.last_layer));
    }
  }
  std::cout << "seeds 1..500\n";
}

// By hand: computing 4 2 | 2 2 balances alone; the link behind layer 1 costs 3 + 4 and moves the
// cut.
TEST(Policy, LinksMoveTheCut) {
  const auto compute = MeasuredCost::ByLayer({{4, 2, 2, 2}, {4, 2, 2, 2}});
  ASSERT_TRUE(compute.ok());
  PartitionRequest request{4, 2, &*compute, [](int, int, Direction) { return 0.0; }};
  EXPECT_THAT(Plan("dp", request)->placement.last_layer, ElementsAre(0, 3));
  EXPECT_EQ(Plan("dp", request)->bottleneck_seconds, 6);
  request.link_seconds = [](int layer, int, Direction direction) {
    return layer == 0 ? (direction == Direction::kBackward ? 4.0 : 3.0) : 1.0;
  };
  EXPECT_THAT(Plan("dp", request)->placement.last_layer, ElementsAre(1, 3));
  EXPECT_EQ(Plan("dp", request)->bottleneck_seconds, 6);
}

TEST(Policy, TiesTakeTheSmallestCut) {
  const auto compute = MeasuredCost::ByLayer({{1, 0, 0, 1}, {1, 0, 0, 1}});
  ASSERT_TRUE(compute.ok());
  const PartitionRequest request{4, 2, &*compute, [](int, int, Direction) { return 0.0; }};
  EXPECT_THAT(Plan("dp", request)->placement.last_layer, ElementsAre(0, 3));
}

TEST(Policy, UniformIsThePapersAveragePartition) {
  EXPECT_THAT(Plan("uniform", {.layers = 20, .devices = 3})->placement.last_layer,
              ElementsAre(6, 13, 19));
  EXPECT_THAT(Plan("uniform", {.layers = 20, .devices = 4})->placement.last_layer,
              ElementsAre(4, 9, 14, 19));
  EXPECT_THAT(Plan("uniform", {.layers = 6, .devices = 6})->placement.last_layer,
              ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Plan("uniform", {.layers = 6, .devices = 1})->placement.last_layer, ElementsAre(5));
}

TEST(Policy, PoliciesThatTakeAllDevicesRefuseMoreThanLayers) {
  const auto compute = MeasuredCost::ByLayer(std::vector<std::vector<double>>(5, {1, 1, 1, 1}));
  ASSERT_TRUE(compute.ok());
  for (const std::string& name : PolicyNames()) {
    SCOPED_TRACE(name);
    PartitionRequest request{4, 5, &*compute, [](int, int, Direction) { return 0.0; }};
    const absl::Status status = Plan(name, request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    if (!(*FindPolicy(name))->chooses_devices) {
      EXPECT_THAT(status.message(), HasSubstr("4 layers cannot make 5 stages; use at most 4"));
    }
    request.devices = 0;
    EXPECT_EQ(Plan(name, request).status().code(), absl::StatusCode::kInvalidArgument);
    request.layers = 0;
    EXPECT_EQ(Plan(name, request).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Policy, CostedPoliciesRefuseBadCosts) {
  const auto compute = MeasuredCost::ByLayer({{1, 1, 1}, {1, 1, 1}});
  ASSERT_TRUE(compute.ok());
  for (absl::string_view name : {"dp", "brute_force"}) {
    PartitionRequest request{3, 2, nullptr, [](int, int, Direction) { return 0.0; }};
    EXPECT_THAT(Plan(name, request).status().message(), HasSubstr("profile the devices"));
    request.compute = &*compute;
    for (double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
      request.link_seconds = [bad](int layer, int, Direction direction) {
        return layer == 1 && direction == Direction::kBackward ? bad : 0;
      };
      const absl::Status status = Plan(name, request).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr("link time of device 0 at layer 1"));
    }
    request = {4, 2, &*compute,
               [](int, int, Direction) { return 0.0; }};  // a layer without profile
    EXPECT_EQ(Plan(name, request).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Policy, BruteForceRefusesWhatItCannotEnumerate) {
  const auto compute =
      MeasuredCost::ByLayer(std::vector<std::vector<double>>(20, std::vector<double>(60, 1)));
  ASSERT_TRUE(compute.ok());
  PartitionRequest request{60, 20, &*compute, [](int, int, Direction) { return 0.0; }};
  EXPECT_EQ(Plan("brute_force", request).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Plan("dp", request)->bottleneck_seconds, 3);
  request = {20, 4, &*compute, request.link_seconds};  // 969 cuts
  EXPECT_EQ(Plan("brute_force", request)->bottleneck_seconds, 5);
}

TEST(MeasuredCost, RefusesBadProfiles) {
  EXPECT_FALSE(MeasuredCost::ByLayer({}).ok());
  EXPECT_FALSE(MeasuredCost::ByLayer({{}}).ok());
  EXPECT_THAT(MeasuredCost::ByLayer({{1, 2}, {1}}).status().message(),
              HasSubstr("device 1 has 1 layers, device 0 has 2"));
  EXPECT_THAT(MeasuredCost::ByLayer({{1, 2}, {1, -2}}).status().message(),
              HasSubstr("device 1, layer 1: -2"));
  EXPECT_FALSE(MeasuredCost::ByLayer({{std::nan("")}}).ok());
}

TEST(MeasuredCost, TakesRangesAsTheyWereMeasured) {
  const auto cost = MeasuredCost::Create(
      {DeviceTimes::ByRange(2, {1, 10, 2}), DeviceTimes::ByRange(2, {3, 30, 4})});
  ASSERT_TRUE(cost.ok());
  EXPECT_EQ(cost->StageSeconds(0, 0, 1), 10);
  EXPECT_EQ(cost->StageSeconds(1, 1, 1), 4);
  EXPECT_TRUE(std::isnan(cost->StageSeconds(-1, 0, 0)));
  EXPECT_FALSE(MeasuredCost::Create({DeviceTimes::ByRange(2, {1, -1, 2})}).ok());
}

TEST(MeasuredCost, SumsARange) {
  const auto cost = MeasuredCost::ByLayer({{1, 2, 4}, {8, 16, 32}});
  ASSERT_TRUE(cost.ok());
  EXPECT_EQ(cost->StageSeconds(0, 0, 2), 7);
  EXPECT_EQ(cost->StageSeconds(1, 1, 2), 48);
  EXPECT_EQ(cost->StageSeconds(1, 0, 0), 8);
  EXPECT_TRUE(std::isnan(cost->StageSeconds(2, 0, 0)));
  EXPECT_TRUE(std::isnan(cost->StageSeconds(0, 0, 3)));
}

TEST(Policy, UnknownNameListsThePolicies) {
  EXPECT_THAT(
      FindPolicy("best").status().message(),
      HasSubstr("'best' is not known; there are uniform, dp, accept, accept_measured, ftpipehd, "
                "ftpipehd+, runnel, brute_force"));
}

}  // namespace
}  // namespace runnel::policy_test
