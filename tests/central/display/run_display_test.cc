#include "central/display/run_display.h"

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "central/display/run_metrics.h"
#include "gtest/gtest.h"
#include "tests/central/display/shown_runs.h"

namespace runnel::run_display_test {
namespace {

// Series and values of /metrics, as `display` shows them.
std::map<std::string, double> Series(const RunDisplay& display) {
  std::map<std::string, double> series;
  std::string family;
  for (const absl::string_view line :
       absl::StrSplit(MetricsText(display.Shown()), '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "# HELP ")) {
      const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
      EXPECT_EQ(words.size(), 4u) << "no help: " << line;
      continue;
    }
    if (line[0] == '#') continue;
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits("} ", 1));
    const size_t space = line.rfind(' ');
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(space + 1), &value)) << line;
    EXPECT_TRUE(series.emplace(line.substr(0, space), value).second) << "twice: " << line;
  }
  return series;
}

class DisplayedRun : public ::testing::Test {
 protected:
  std::map<std::string, double> Show(const RunView& view) {
    display_.Update(view);
    return Series(display_);
  }

  MonotonicClock clock_;
  RunDisplay display_{{}, -1, &clock_};
};

// The receiver of a direction measures it: what comes down is told by the stage below.
TEST_F(DisplayedRun, LinksHaveTheNamesOfBothEnds) {
  RunView view = TwoStages();
  const std::string forward =
      R"(runnel_link_bandwidth_bytes_per_second{link="0",direction="forward",from="a",to="b"})";
  const std::string backward =
      R"(runnel_link_bandwidth_bytes_per_second{link="0",direction="backward",from="b",to="a"})";
  EXPECT_EQ(Show(view).count(forward), 0u) << "nothing is measured yet";
  view.stages[1].telemetry.upstream_bytes_per_second = 5e6;
  view.stages[0].telemetry.downstream_bytes_per_second = 2e6;
  view.stages[1].telemetry.upstream_round_trip_ns = 2'000'000;
  view.links = {{4, 8, {LinkRate::Mbps(8), LinkRate::Mbps(16)}}};
  auto series = Show(view);
  EXPECT_EQ(series[forward], 5e6);
  EXPECT_EQ(series[backward], 2e6);
  EXPECT_EQ(
      series[R"(runnel_link_round_trip_seconds{link="0",direction="forward",from="a",to="b"})"],
      0.002);
  EXPECT_EQ(series[R"(runnel_link_codec_width{link="0",direction="backward",from="b",to="a"})"], 8);
  EXPECT_EQ(
      series
          [R"(runnel_link_expected_bytes_per_second{link="0",direction="backward",from="b",to="a"})"],
      2e6);
  const std::string relayed = R"(runnel_link_relayed{link="0",from="a",to="b"})";
  EXPECT_EQ(series[relayed], 0);
  view.stages[1].relayed = true;
  EXPECT_EQ(Show(view)[relayed], 1);
}

TEST_F(DisplayedRun, GridsHaveTheBitsOfTheLevel) {
  RunView view = TwoStages();
  EXPECT_EQ(Show(view).count(R"(runnel_grid_bits_width{operand="gradients"})"), 0u) << "FP32";
  view.grid_bits = {3, 6};
  auto series = Show(view);
  EXPECT_EQ(series[R"(runnel_grid_bits_width{operand="weights_and_activations"})"], 3);
  EXPECT_EQ(series[R"(runnel_grid_bits_width{operand="gradients"})"], 6);
}

// Of the last target that samples were trained with.
TEST_F(DisplayedRun, GatesHaveSharesAndACost) {
  RunView view = TwoStages();
  EXPECT_EQ(Show(view).count("runnel_gate_cost_ratio"), 0u) << "there are none";
  view.gates = {{"block1", {"0", "4/6"}, {30, 10}, 0.75, 4}};
  view.gate_targets = {{1.5, 20, 1.75, 1.625}, {2, 20, 2.25, 2.125}, {3, 0, 0, 0}};
  auto series = Show(view);
  EXPECT_EQ(series[R"(runnel_gate_skipped_ratio{block="block1"})"], 0.75);
  EXPECT_EQ(series[R"(runnel_gate_bits_width{block="block1"})"], 4);
  EXPECT_EQ(series["runnel_gate_cost_ratio"], 0.02125);
  EXPECT_EQ(series["runnel_gate_cost_target_ratio"], 0.02);
}

TEST_F(DisplayedRun, CopiesHaveAnAge) {
  RunView view = TwoStages();
  EXPECT_EQ(Show(view).count("runnel_replica_age_steps"), 0u) << "there is none yet";
  view.progress.step = 130;
  view.replication.count = 1;
  view.replication.step = 100;
  EXPECT_EQ(Show(view)["runnel_replica_age_steps"], 30);
  EXPECT_EQ(Show(view)["runnel_moves_total"], 0);
}

// Names that dashboards and alerts read.
TEST_F(DisplayedRun, FiguresOfAStageHaveTheirNames) {
  RunView view = TwoStages();
  view.plan_ns = 1000;
  view.stage_samples = {4, 4};
  Telemetry& telemetry = view.stages[1].telemetry;
  telemetry.busy_ns = 250;
  telemetry.wait_ns = 125;
  telemetry.codec_ns = 500'000'000;
  telemetry.peak_rss_bytes = 7;
  telemetry.stale_frames_dropped = 3;
  telemetry.bytes_up = 9;
  telemetry.raw_bytes_up = 36;
  telemetry.resent_frames_up = 6;
  telemetry.joules = 2;
  telemetry.energy_source = EnergySource::kRapl;
  auto series = Show(view);
  const auto stage = [&series](const std::string& name) {
    return series[name + R"({stage="1",worker="b"})"];
  };
  EXPECT_EQ(stage("runnel_stage_busy_ratio"), 0.25);
  EXPECT_EQ(stage("runnel_stage_wait_ratio"), 0.125);
  EXPECT_DOUBLE_EQ(stage("runnel_stage_compute_seconds_total"), 250e-9);
  EXPECT_EQ(stage("runnel_stage_codec_seconds_total"), 0.5);
  EXPECT_EQ(stage("runnel_stage_peak_resident_bytes"), 7);
  EXPECT_EQ(stage("runnel_stage_stale_frames_total"), 3);
  EXPECT_EQ(stage("runnel_stage_layers"), 3);
  EXPECT_EQ(stage("runnel_stage_in_flight_limit"), 1);
  EXPECT_EQ(series[R"(runnel_stage_joules{stage="1",worker="b",source="rapl"})"], 2);
  EXPECT_EQ(series[R"(runnel_stage_joules_per_sample{stage="1",worker="b",source="rapl"})"], 0.5);
  EXPECT_EQ(series.count(R"(runnel_stage_joules{stage="0",worker="a",source="model"})"), 0u);
  const std::string link = R"({link="0",direction="backward",from="b",to="a"})";
  EXPECT_EQ(series["runnel_link_bytes_total" + link], 9);
  EXPECT_EQ(series["runnel_link_raw_bytes_total" + link], 36);
  EXPECT_EQ(series["runnel_link_resent_frames_total" + link], 6);
}

TEST_F(DisplayedRun, WhatIsGoneHasNoSeries) {
  RunView view = TwoStages();
  auto series = Show(view);
  EXPECT_EQ(series[R"(runnel_worker_up{worker="b"})"], 1);
  EXPECT_GE(series[R"(runnel_worker_heartbeat_age_seconds{worker="b"})"], 0.25);
  // b is lost, c has its stage; a fourth one that left is not shown any more.
  view.workers[1].heard_s_ago = -1;
  view.stages[1].worker = "c";
  series = Show(view);
  for (const auto& [name, value] : series) {
    EXPECT_TRUE(!absl::StrContains(name, "\"b\"") || absl::StartsWith(name, "runnel_worker_up"))
        << name;
  }
  EXPECT_EQ(series[R"(runnel_worker_up{worker="b"})"], 0);
  EXPECT_EQ(series.count(R"(runnel_stage_layers{stage="1",worker="c"})"), 1u);
}

// A recovery goes back; a counter never does, or a rate over it would jump.
TEST_F(DisplayedRun, SamplesTrainedAgainCountTwice) {
  RunView view = TwoStages();
  view.progress.samples = 1000;
  EXPECT_EQ(Show(view)["runnel_samples_total"], 1000);
  view.progress.samples = 900;
  EXPECT_EQ(Show(view)["runnel_samples_total"], 1000);
  view.progress.samples = 950;
  EXPECT_EQ(Show(view)["runnel_samples_total"], 1050);
}

TEST_F(DisplayedRun, EventsAreCounted) {
  RunView view = TwoStages();
  auto series = Show(view);
  EXPECT_EQ(series["runnel_workers_lost_total"], 0);
  EXPECT_EQ(series.count("runnel_checkpoint_timestamp_seconds"), 0u);
  EXPECT_EQ(series.count("runnel_last_step_timestamp_seconds"), 0u);
  display_.AddEvent({EventKind::kLost, 40, "b is lost", "it closed its control stream"});
  display_.AddEvent({EventKind::kPlan, 40, "plan 2"});
  display_.AddEvent({EventKind::kCheckpoint, 50, "check-point x"});
  display_.AddEvent({EventKind::kCheckpointFailed, 60, "could not be written", "disk full"});
  view.progress.step = 70;
  display_.Evaluation(view, 50, 0.75, 1.5);
  series = Series(display_);
  EXPECT_EQ(series["runnel_workers_lost_total"], 1);
  EXPECT_EQ(series["runnel_plans_total"], 1);
  EXPECT_EQ(series["runnel_checkpoints_total"], 1);
  EXPECT_EQ(series["runnel_checkpoint_failures_total"], 1);
  EXPECT_EQ(series["runnel_checkpoint_step"], 50);
  EXPECT_GT(series["runnel_checkpoint_timestamp_seconds"], 1e9);
  EXPECT_GT(series["runnel_last_step_timestamp_seconds"], 1e9);
  EXPECT_EQ(series["runnel_test_accuracy_ratio"], 0.75);
  EXPECT_EQ(series["runnel_test_step"], 50);
  EXPECT_EQ(series[R"(runnel_phase{phase="training"})"], 1);
  EXPECT_EQ(series[R"(runnel_phase{phase="done"})"], 0);
}

TEST_F(DisplayedRun, ProcessorsAreInformation) {
  RunView view = TwoStages();
  view.workers[0].member.processors = {{.backend = "opencl",
                                        .state = ProcessorState::kChecked,
                                        .device = "GPU",
                                        .driver = "1",
                                        .dot_product = "khr"}};
  EXPECT_EQ(Show(view)[R"(runnel_worker_processor_info{worker="a",backend="opencl",device="GPU",)"
                       R"(driver="1",dot_product="khr",usable="yes"})"],
            1);
}

}  // namespace
}  // namespace runnel::run_display_test
