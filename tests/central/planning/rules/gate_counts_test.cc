#include "central/planning/rules/gate_counts.h"

#include "central/planning/rules/training_rules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::gate_counts_test {
namespace {

using ::testing::ElementsAre;

// Two layers with a gate, of equal multiply-adds.
ModelSpec TwoGates() {
  ModelSpec model{"two", {4, 6, 6}, 3, {}};
  for (const char* name : {"one", "two"}) {
    OpSpec gate{.kind = OpKind::kGate, .inputs = {0}};
    gate.options = {0, 8, 8, 8};
    gate.held = true;
    model.layers.push_back({name,
                            {gate,
                             {.kind = OpKind::kPack, .inputs = {0, 1}},
                             {.kind = OpKind::kConv, .inputs = {2}, .out_channels = 4},
                             {.kind = OpKind::kUnpack, .inputs = {3, 1}},
                             {.kind = OpKind::kAdd, .inputs = {4, 0}}}});
    model.layers.back().ops[2].kernel = {1, 1};
  }
  model.layers.push_back({"head",
                          {{.kind = OpKind::kGlobalAvgPool, .inputs = {0}},
                           {.kind = OpKind::kLinear, .inputs = {1}, .out_channels = 3}}});
  return model;
}

// Two stages with a gate each; barriers each 10 steps, after 4 samples.
class GatedRun {
 public:
  GatedRun() { Begin(); }

  // At the next barrier; so many of 4 samples ran in each of both blocks.
  void Barrier(int64_t first, int64_t second) {
    Count(0, first);
    Count(1, second);
    stages_[1].telemetry.loss_samples += 4;
    step_ += 10;
    EXPECT_TRUE(
        rules_.AtBarrier({step_, plan_, Sequence(0), stages_, {}, times_, true, {}, &changes_})
            .empty());
  }
  void Recover(int64_t step) {
    rules_.GoBackTo(step);
    step_ = step;
    Replan();
  }
  void Resume() {
    const RuleStates states = rules_.StatesAt(step_);
    rules_ = TrainingRules();
    Begin();
    EXPECT_TRUE(rules_.Restore(states).ok());
    Replan();
  }
  // Stages count from 0.
  void Replan() {
    plan_.generation = plan_.generation.next();
    stages_ = std::vector<StageStatus>(2);
  }
  void Turn() { changes_.push_back(ChangeOfCostTarget(step_, 1)); }
  GateTotals totals() const { return *ParseGateTotals(rules_.StatesAt(step_).at("gates")); }

 private:
  void Begin() {
    rules_.Add(GateCounts::kName,
               std::make_unique<GateCounts>(*GateCost::Of(TwoGates()), *ParseCostTarget("1,2")));
  }
  void Count(size_t stage, int64_t ran) {
    Telemetry& telemetry = stages_[stage].telemetry;
    if (telemetry.gates.empty()) telemetry.gates = {{static_cast<int32_t>(stage), {0, 0}}};
    telemetry.gates[0].samples[0] += 4 - ran;
    telemetry.gates[0].samples[1] += ran;
    telemetry.macs_done += 100.0 * static_cast<double>(ran);
    telemetry.effective_macs += 6.25 * static_cast<double>(ran);
  }

  TrainingRules rules_;
  Plan plan_;
  std::vector<StageStatus> stages_{2};
  std::vector<DeviceTimes> times_;
  std::vector<TrainingChange> changes_;
  int64_t step_ = 0;
};

void ExpectThreeBarriers(const GateTotals& totals) {
  EXPECT_EQ(totals.samples, 12);
  EXPECT_DOUBLE_EQ(totals.macs_done, 1200);
  EXPECT_DOUBLE_EQ(totals.effective_macs, 75);
  EXPECT_THAT(totals.choices.at(0), ElementsAre(4, 8));
  EXPECT_THAT(totals.choices.at(1), ElementsAre(8, 4));
  ASSERT_EQ(totals.levels.size(), 2u);
  EXPECT_EQ(totals.levels[0].samples, 8);
  EXPECT_DOUBLE_EQ(totals.levels[0].percent_sum / 8, 6.25 * 5 / 16);
  EXPECT_DOUBLE_EQ(totals.levels[0].last_percent, 6.25 * 3 / 8);
  EXPECT_EQ(totals.levels[1].samples, 4);
  EXPECT_DOUBLE_EQ(totals.levels[1].last_percent, 6.25 * 7 / 8);
}

TEST(GateCounts, AddUpOverPlansRecoveriesAndResumedRuns) {
  GatedRun run;
  run.Barrier(2, 0);
  run.Barrier(2, 1);
  run.Turn();
  run.Barrier(4, 3);
  ExpectThreeBarriers(run.totals());

  GatedRun disturbed;
  disturbed.Barrier(2, 0);
  disturbed.Replan();
  disturbed.Barrier(0, 4);
  disturbed.Recover(10);
  disturbed.Barrier(2, 1);
  disturbed.Turn();
  disturbed.Resume();
  disturbed.Barrier(4, 3);
  ExpectThreeBarriers(disturbed.totals());
}

TEST(GateCounts, StatesThatAreNoneAreRefused) {
  GateCounts counts(*GateCost::Of(TwoGates()), *ParseCostTarget("off"));
  EXPECT_TRUE(counts.Restore(counts.State()).ok());
  for (const char* state :
       {"", "{}", "[]", R"({"samples":1})",
        R"({"samples":1,"macs_done":1,"effective_macs":1,"choices":[1],"levels":[]})"})
    EXPECT_EQ(counts.Restore(state).code(), absl::StatusCode::kInvalidArgument) << state;
}

}  // namespace
}  // namespace runnel::gate_counts_test
