// The dynamic program against every assignment there is, and against the stored plans of two
// processors that another program computed.

#include "kernels/ir/co_scheduler/chain_schedule.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/base/random.h"

namespace runnel::chain_schedule_test {
namespace {

using ::testing::HasSubstr;

// What an assignment costs, summed as it runs.
double SecondsOf(const InstructionChain& chain, const std::vector<int>& processors) {
  double seconds = 0;
  std::optional<int> at = chain.start;
  for (size_t i = 0; i < processors.size(); ++i) {
    const int p = processors[i];
    if (at.has_value() && *at != p) {
      const SwitchCost& cost = chain.switches[static_cast<size_t>(*at)][static_cast<size_t>(p)];
      seconds += cost.seconds + static_cast<double>(chain.moved_bytes[i]) * cost.seconds_per_byte;
    }
    seconds += chain.seconds[i][static_cast<size_t>(p)];
    at = p;
  }
  if (at.has_value() && chain.end.has_value() && *at != *chain.end) {
    const SwitchCost& cost =
        chain.switches[static_cast<size_t>(*at)][static_cast<size_t>(*chain.end)];
    seconds += cost.seconds + static_cast<double>(chain.moved_bytes.back()) * cost.seconds_per_byte;
  }
  return seconds;
}

double LeastSeconds(const InstructionChain& chain) {
  std::vector<int> processors(chain.seconds.size());
  const int count = static_cast<int>(chain.switches.size());
  double least = kUnsupported;
  for (;;) {
    least = std::min(least, SecondsOf(chain, processors));
    size_t i = 0;
    while (i < processors.size() && ++processors[i] == count) processors[i++] = 0;
    if (i == processors.size()) return least;
  }
}

// Whole numbers, so that sums are exact in any order. One instruction in four is missing on a
// processor other than the first.
InstructionChain RandomChain(uint64_t seed) {
  const CounterRandom random(seed, RandomPurpose::kTest, 1, 1);
  uint64_t drawn = 0;
  const auto below = [&](uint32_t limit) { return static_cast<int>(random.Below(drawn++, limit)); };
  const int processors = 2 + below(3);
  const int most[] = {12, 7, 6};  // instructions, for 2 to 4 processors
  const int count = 1 + below(static_cast<uint32_t>(most[processors - 2]));
  InstructionChain chain;
  for (int i = 0; i < count; ++i) {
    std::vector<double>& row = chain.seconds.emplace_back();
    for (int p = 0; p < processors; ++p)
      row.push_back(p > 0 && below(4) == 0 ? kUnsupported : 1 + below(60));
  }
  for (int i = 0; i <= count; ++i) chain.moved_bytes.push_back(below(8));
  for (int p = 0; p < processors; ++p) {
    std::vector<SwitchCost>& row = chain.switches.emplace_back();
    for (int q = 0; q < processors; ++q)
      row.push_back({static_cast<double>(below(30)), static_cast<double>(below(5))});
  }
  if (below(3) > 0) chain.start = below(static_cast<uint32_t>(processors));
  if (below(3) > 0) chain.end = below(static_cast<uint32_t>(processors));
  return chain;
}

TEST(ChainSchedule, IsTheBestOfAllAssignmentsOf3000Chains) {
  int mixed = 0, with_three = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const InstructionChain chain = RandomChain(seed);
    const ChainSchedule schedule = *ScheduleChain(chain);
    ASSERT_EQ(schedule.seconds, LeastSeconds(chain)) << "chain " << seed;
    ASSERT_EQ(schedule.seconds, SecondsOf(chain, schedule.processors)) << "chain " << seed;
    const auto& used = schedule.processors;
    mixed += std::any_of(used.begin(), used.end(), [&](int p) { return p != used[0]; }) ? 1 : 0;
    with_three += chain.switches.size() >= 3 ? 1 : 0;
  }
  // The chains are worth the name: many need a switch, many have more than two processors.
  EXPECT_GT(mixed, 600);
  EXPECT_GT(with_three, 1500);
}

// Chains of two processors, C and D; null: D does not have the instruction.
TEST(ChainSchedule, IsThePlanOfTheGoldenFile) {
  std::ifstream file(RUNNEL_SOURCE_DIR "/tests/golden/co_schedule.json");
  const nlohmann::json rows = nlohmann::json::parse(file);
  ASSERT_EQ(rows.size(), 27u);
  for (const nlohmann::json& row : rows) {
    InstructionChain chain;
    for (size_t i = 0; i < row["cpu"].size(); ++i) {
      const nlohmann::json& dsp = row["dsp"][i];
      chain.seconds.push_back(
          {row["cpu"][i].get<double>(), dsp.is_null() ? kUnsupported : dsp.get<double>()});
    }
    const SwitchCost cost = {row["switch"].get<double>(), 0};
    chain.switches = {{cost, cost}, {cost, cost}};
    if (!row["start"].is_null()) chain.start = row["start"].get<int>();
    if (!row["end"].is_null()) chain.end = row["end"].get<int>();
    const ChainSchedule schedule = *ScheduleChain(chain);
    EXPECT_EQ(schedule.seconds, row["total"].get<double>()) << row["name"];
    std::string plan;
    for (int p : schedule.processors) plan += "CD"[p];
    EXPECT_EQ(plan, row["plan"].get<std::string>()) << row["name"];
  }
}

TEST(ChainSchedule, BytesDecideWhereASwitchIs) {
  InstructionChain chain;
  chain.seconds = {{1, 9}, {5, 5}, {5, 5}, {9, 1}};
  chain.switches = {{{0, 0}, {2, 1}}, {{2, 1}, {0, 0}}};
  chain.start = 0;
  chain.moved_bytes = {0, 3, 1, 3, 0};
  EXPECT_EQ(ScheduleChain(chain)->processors, (std::vector<int>{0, 0, 1, 1}));
  chain.moved_bytes = {0, 1, 3, 3, 0};
  EXPECT_EQ(ScheduleChain(chain)->processors, (std::vector<int>{0, 1, 1, 1}));
}

TEST(ChainSchedule, WhatDoesNotFitIsSaid) {
  InstructionChain chain;
  chain.seconds = {{1, 1}, {kUnsupported, kUnsupported}};
  chain.switches = {{{}, {}}, {{}, {}}};
  EXPECT_EQ(ScheduleChain(chain).status(),
            absl::UnimplementedError("no processor has instruction 1"));
  chain.seconds = {{1, 1}, {1}};
  EXPECT_THAT(ScheduleChain(chain).status().message(), HasSubstr("1 costs in a row, 2 processors"));
  chain.seconds = {{1, 1}};
  chain.moved_bytes = {1};
  EXPECT_THAT(ScheduleChain(chain).status().message(), HasSubstr("needs 2"));
  chain.moved_bytes.clear();
  chain.end = 2;
  EXPECT_THAT(ScheduleChain(chain).status().message(), HasSubstr("processor 2, has 2"));
  EXPECT_TRUE(absl::IsInvalidArgument(ScheduleChain({}).status()));
}

TEST(ChainSchedule, NothingToRunTakesNoTime) {
  InstructionChain chain;
  chain.switches = {{{}}};
  chain.start = chain.end = 0;
  EXPECT_EQ(ScheduleChain(chain)->seconds, 0);
  EXPECT_TRUE(ScheduleChain(chain)->processors.empty());
}

}  // namespace
}  // namespace runnel::chain_schedule_test
