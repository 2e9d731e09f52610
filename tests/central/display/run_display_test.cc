#include "central/display/run_display.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace runnel {
namespace {

class LastValues final : public MetricsSink {
 public:
  void Describe(absl::string_view name, absl::string_view help) override {
    helps[std::string(name)] = std::string(help);
  }
  void AddCounter(absl::string_view name, const MetricLabels& labels, double value) override {
    EXPECT_NE(helps[std::string(name)], "") << name;
    values[Key(std::string(name), labels)] += value;
  }
  void SetGauge(absl::string_view name, const MetricLabels& labels, double value) override {
    EXPECT_NE(helps[std::string(name)], "") << name;
    values[Key(std::string(name), labels)] = value;
  }
  static std::string Key(std::string name, const MetricLabels& labels) {
    for (const auto& [label, value] : labels) absl::StrAppend(&name, " ", label, "=", value);
    return name;
  }
  std::map<std::string, std::string> helps;
  std::map<std::string, double> values;
};

RunView TwoStages() {
  RunView view;
  view.plan.stages = {{{Seat{DeviceId(0)}}, 0, 1, 2}, {{Seat{DeviceId(1)}}, 2, 4, 1}};
  view.plan.links.resize(1);
  view.stages = {{view.plan.stages[0], "a", {}}, {view.plan.stages[1], "b", {}}};
  return view;
}

// The receiver of a direction measures it: what comes down is told by the stage below.
TEST(RunDisplay, BandwidthOfEachDirection) {
  LastValues metrics;
  MonotonicClock clock;
  RunDisplay display({}, -1, &metrics, &clock);
  RunView view = TwoStages();
  display.Update(view);
  const std::string forward = "runnel_link_bandwidth_bytes_per_second link=0 direction=forward";
  const std::string backward = "runnel_link_bandwidth_bytes_per_second link=0 direction=backward";
  EXPECT_EQ(metrics.values.count(forward), 0u) << "nothing is measured yet";
  view.stages[1].telemetry.upstream_bytes_per_second = 5e6;
  view.stages[0].telemetry.downstream_bytes_per_second = 2e6;
  display.Update(view);
  EXPECT_EQ(metrics.values[forward], 5e6);
  EXPECT_EQ(metrics.values[backward], 2e6);
  const nlohmann::json state = nlohmann::json::parse(display.StateJson());
  EXPECT_EQ(state["links"][0]["bandwidth_forward_bytes_per_s"], 5e6);
  EXPECT_EQ(state["links"][0]["bandwidth_backward_bytes_per_s"], 2e6);
  EXPECT_EQ(state["links"][0]["relayed"], false);
  EXPECT_EQ(metrics.values["runnel_link_relayed link=0"], 0);
  view.stages[1].relayed = true;
  display.Update(view);
  EXPECT_EQ(metrics.values["runnel_link_relayed link=0"], 1);
}

// Names that dashboards read.
TEST(RunDisplay, FiguresOfAStageHaveTheirNames) {
  LastValues metrics;
  MonotonicClock clock;
  RunDisplay display({}, -1, &metrics, &clock);
  RunView view = TwoStages();
  view.plan_ns = 1000;
  view.stage_samples = {4, 4};
  Telemetry& telemetry = view.stages[1].telemetry;
  telemetry.busy_ns = 250;
  telemetry.wait_ns = 125;
  telemetry.peak_rss_bytes = 7;
  telemetry.stale_frames_dropped = 3;
  telemetry.bytes_up = 9;
  telemetry.resent_frames_up = 6;
  telemetry.joules = 2;
  telemetry.energy_source = EnergySource::kRapl;
  display.Update(view);
  display.Update(view);
  const std::string stage = " stage=1 worker=b";
  EXPECT_EQ(metrics.values["runnel_stage_busy_ratio" + stage], 0.25);
  EXPECT_EQ(metrics.values["runnel_stage_wait_ratio" + stage], 0.125);
  EXPECT_EQ(metrics.values["runnel_stage_peak_resident_bytes" + stage], 7);
  EXPECT_EQ(metrics.values["runnel_stage_stale_frames_total" + stage], 3) << "counted once";
  EXPECT_EQ(metrics.values["runnel_stage_joules" + stage + " source=rapl"], 2);
  EXPECT_EQ(metrics.values["runnel_stage_joules_per_sample" + stage + " source=rapl"], 0.5);
  EXPECT_EQ(metrics.values.count("runnel_stage_joules stage=0 worker=a source=model"), 0u);
  EXPECT_EQ(metrics.values["runnel_link_bytes_total link=0 direction=backward"], 9);
  EXPECT_EQ(metrics.values.count("runnel_link_bytes_total link=0 direction=forward"), 1u);
  EXPECT_EQ(metrics.values["runnel_link_resent_frames_total link=0 direction=backward"], 6);
  const nlohmann::json state = nlohmann::json::parse(display.StateJson());
  EXPECT_EQ(state["stages"][1]["busy_share"], 0.25);
  EXPECT_EQ(state["links"][0]["resent_backward"], 6);
  EXPECT_EQ(state["links"][0]["bytes_backward"], 9);
  EXPECT_FALSE(state["links"][0].contains("frames")) << "only in the summary";
}

// What was so and is no more is 0, since a value that is there stays.
TEST(RunDisplay, ProcessorsAreInformation) {
  LastValues metrics;
  MonotonicClock clock;
  RunDisplay display({}, -1, &metrics, &clock);
  RunView view = TwoStages();
  view.processors = {{"a", {{.backend = "opencl"}}}};
  display.Update(view);
  const std::string unopened =
      "runnel_worker_processor_info worker=a backend=opencl device= driver= dot_product= "
      "usable=not opened";
  EXPECT_EQ(metrics.values[unopened], 1);
  view.processors[0].processors[0] = {.backend = "opencl",
                                      .state = ProcessorState::kChecked,
                                      .device = "GPU",
                                      .driver = "1",
                                      .dot_product = "khr"};
  display.Update(view);
  EXPECT_EQ(metrics.values[unopened], 0);
  EXPECT_EQ(metrics.values["runnel_worker_processor_info worker=a backend=opencl device=GPU "
                           "driver=1 dot_product=khr usable=yes"],
            1);
}

}  // namespace
}  // namespace runnel
