#include "central/display/state_json.h"

#include <cmath>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/central/display/shown_runs.h"

namespace runnel::state_json_test {
namespace {

using nlohmann::json;

json StateOf(const ShownRun& run) { return json::parse(StateJson(run)); }

TEST(StateJson, WhileWorkersAreAwaited) {
  ShownRun run;
  run.facts.dialling_workers = 3;
  run.facts.local_workers = 1;
  run.facts.join_commands = {"runnel-worker --central 192.168.1.10:7000"};
  run.view.workers = TwoStages().workers;
  run.view.workers[2].heard_s_ago = -1;
  const json state = StateOf(run);
  EXPECT_EQ(state["phase"], "waiting");
  EXPECT_EQ(state["join"]["commands"][0], run.facts.join_commands[0]);
  EXPECT_EQ(state["join"]["wanted"], 3);
  EXPECT_EQ(state["join"]["here"], 1) << "of those that dial in";
  EXPECT_EQ(state["join"]["local_here"], 1);
  EXPECT_EQ(state["workers"].size(), 3u);
  EXPECT_EQ(state["workers"][2]["here"], false);
  EXPECT_FALSE(state["workers"][2].contains("heard_s_ago"));
  EXPECT_TRUE(state["stages"].empty());
  EXPECT_FALSE(state.contains("accuracy"));
  EXPECT_FALSE(state.contains("train_loss")) << "NaN is no JSON";
}

TEST(StateJson, WhatCardsSayOfADevice) {
  ShownRun run;
  run.view = TwoStages();
  run.view.plan_ns = 1'000'000'000;
  run.view.workers[0].member.limits = "battery 20 % or more";
  Telemetry& first = run.view.stages[0].telemetry;
  first.celsius = 48.5;
  first.battery_charge = 0.37;
  first.certificate_until_s = 1'800'000'000;
  first.stash_bytes = 4096;
  first.queue_length = 2;
  first.forward_times.Add(250'000'000);
  const json state = StateOf(run);
  EXPECT_EQ(state["workers"][0]["limits"], "battery 20 % or more");
  EXPECT_FALSE(state["workers"][1].contains("limits"));
  const json& stage = state["stages"][0];
  EXPECT_EQ(stage["celsius"], 48.5);
  EXPECT_EQ(stage["battery_charge"], 0.37);
  EXPECT_EQ(stage["certificate_until_s"], 1'800'000'000);
  EXPECT_EQ(stage["stash_bytes"], 4096);
  EXPECT_EQ(stage["queue_length"], 2);
  EXPECT_EQ(stage["forward_share"], 0.25);
  EXPECT_FALSE(state["stages"][1].contains("celsius")) << "its device shows none";
}

TEST(StateJson, WhatAMicroBatchIsMadeOf) {
  ShownRun run;
  run.view.period.measured_seconds = 0.010;
  run.view.period.predicted_seconds = 0.009;
  EXPECT_FALSE(StateOf(run).contains("parts")) << "not known";
  run.view.period.parts = {.slowest = "pi-1",
                           .computing_seconds = 0.008,
                           .bubble_seconds = 0.004,
                           .links_seconds = 0.002,
                           .evaluation_seconds = 0.001,
                           .memory_seconds = 0.003};
  run.view.period.parts.helps = {{"pi-1 twice as fast", 0.006}};
  const json parts = StateOf(run)["parts"];
  EXPECT_EQ(parts["slowest"], "pi-1");
  EXPECT_EQ(parts["computing_ms"], 8);
  EXPECT_EQ(parts["links_ms"], 2);
  EXPECT_EQ(parts["bubble_ms"], 4);
  EXPECT_EQ(parts["evaluation_ms"], 1);
  EXPECT_EQ(parts["memory_ms"], 3);
  EXPECT_EQ(parts["helps"][0]["what"], "pi-1 twice as fast");
  EXPECT_EQ(parts["helps"][0]["ms"], 6);
}

TEST(StateJson, BitsOfTheLevel) {
  ShownRun run;
  EXPECT_FALSE(StateOf(run).contains("grid_bits"));
  run.view.grid_bits = {4, 6};
  EXPECT_EQ(StateOf(run)["grid_bits"], "4/6");
}

TEST(StateJson, WhatGatesChose) {
  ShownRun run;
  EXPECT_FALSE(StateOf(run).contains("gates")) << "the model has none";
  run.view.gates = {{"block1", {"0", "4/6"}, {30, 10}, 0.75, 4}};
  run.view.gate_targets = {{2, 40, 2.25, 2.125}};
  const json gate = StateOf(run)["gates"][0];
  EXPECT_EQ(StateOf(run)["gate_targets"][0]["last_percent"], 2.125);
  EXPECT_EQ(gate["layer"], "block1");
  EXPECT_EQ(gate["skipped_share"], 0.75);
  EXPECT_EQ(gate["samples"], (json{30, 10}));
}

TEST(StateJson, StagesAndLinks) {
  ShownRun run;
  run.view = TwoStages();
  run.view.plan_ns = 1000;
  run.view.stages[1].telemetry.busy_ns = 500;
  run.view.stages[1].telemetry.upstream_bytes_per_second = 5e6;
  run.view.stages[0].telemetry.downstream_round_trip_ns = 2'000'000;
  run.view.links = {{4, 0, {LinkRate::Mbps(8), {}}}};
  run.view.stage_seconds = {{0.5, 0.25}, {}};
  const json state = StateOf(run);
  EXPECT_EQ(state["stages"][1]["busy_share"], 0.5);
  EXPECT_EQ(state["stages"][0]["measured_ms"], 250);
  EXPECT_FALSE(state["stages"][1].contains("measured_ms"));
  EXPECT_EQ(state["bubble_share"], 0.75);
  const json& link = state["links"][0];
  EXPECT_EQ(link["from"], "a");
  EXPECT_EQ(link["to"], "b");
  EXPECT_EQ(link["bandwidth_forward_bytes_per_s"], 5e6);
  EXPECT_EQ(link["expected_forward_bytes_per_s"], 1e6);
  EXPECT_FALSE(link.contains("expected_backward_bytes_per_s")) << "not known";
  EXPECT_EQ(link["bits_forward"], 4);
  EXPECT_FALSE(link.contains("bits_backward"));
  EXPECT_EQ(link["round_trip_s"], 0.002);
  EXPECT_FALSE(link.contains("frames")) << "only in the summary";
}

TEST(StateJson, TimeLeftIsThatOfThisStretchOfTheRun) {
  ShownRun run;
  run.view = TwoStages();
  run.view.first_step = 100;
  run.view.progress.step = 150;
  run.view.progress.steps = 200;
  run.view.training_ns = 10'000'000'000;
  EXPECT_EQ(StateOf(run)["eta_s"], 10);
  run.view.phase = RunPhase::kDone;
  EXPECT_FALSE(StateOf(run).contains("eta_s"));
}

TEST(StateJson, WhatHappenedAndWhatToDo) {
  ShownRun run;
  run.facts.join_commands = {"runnel-worker --central h:1"};
  run.history.log.Add({EventKind::kLost, 40, "b is lost", "it closed its control stream"});
  run.history.evaluations = {{30, 0.5, 1.25}};
  run.history.loss.Add(3, 2.5);
  run.history.AddPlan({1, 0, "because", "links", {{"a", 0, 4}}});
  const json state = StateOf(run);
  EXPECT_EQ(state["events"][0]["kind"], "lost");
  EXPECT_EQ(state["events"][0]["why"], "it closed its control stream");
  EXPECT_NE(state["events"][0]["remedy"].get<std::string>().find(run.facts.join_commands[0]),
            std::string::npos);
  EXPECT_EQ(state["evaluations"][0], json::parse("[30, 0.5, 1.25]"));
  EXPECT_EQ(state["losses"][0], json::parse("[3, 2.5, 2.5, 2.5]"));
  EXPECT_EQ(state["accuracy"], 0.5);
  EXPECT_EQ(state["plans"][0]["stages"][0]["device"], "a");
}

TEST(StateJson, TextsOfOthersMayBeAnyBytes) {
  ShownRun run;
  run.history.log.Add({EventKind::kNote, 0, "\xff\xfe </script>"});
  EXPECT_EQ(StateOf(run)["events"].size(), 1u);
}

}  // namespace
}  // namespace runnel::state_json_test
