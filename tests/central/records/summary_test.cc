#include "central/records/summary.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/scratch.h"

namespace runnel::summary_test {
namespace {

using ::testing::ElementsAre;

StageSummary Stage(int64_t busy_ns, int64_t wait_ns, int64_t busy_processor_ns, int64_t rss) {
  StageSummary stage{.base = {.training_ns = 1000, .samples = 8}};
  stage.telemetry.busy_ns = busy_ns;
  stage.telemetry.wait_ns = wait_ns;
  stage.telemetry.busy_processor_ns = busy_processor_ns;
  stage.telemetry.processor_ns = 500;
  stage.telemetry.peak_rss_bytes = rss;
  stage.telemetry.memory_bytes = rss - 500;
  return stage;
}

LinkSummary Link() {
  LinkSummary link{"mbq:4", "stochastic:8"};
  link.above.bytes_down = 10;
  link.above.raw_bytes_down = 80;
  link.above.frames_down = 4;
  link.above.downstream_bytes_per_second = 2e6;
  link.below.bytes_up = 20;
  link.below.raw_bytes_up = 81;
  link.below.frames_up = 2;
  link.below.upstream_bytes_per_second = 1e6;
  return link;
}

RunSummary Sample() {
  RunSummary s;
  s.accuracy = 0.9875;
  s.loss = 0.1;
  s.train_loss = 0.2;
  s.samples_per_s = 512.5;
  s.central_processor_share = 0.125;
  s.wall_s = 12.25;
  s.weights_sha256 = std::string(64, 'e');
  s.steps = 300;
  s.epochs = 3;
  s.model = "lenet";
  s.dataset = "synthetic_digits";
  s.schedule = "async_1f1b";
  s.policy = "uniform";
  s.seed = 7;
  s.codec_forward = "mbq:4";
  s.codec_backward = "stochastic:8";
  s.plan.stages = {{{Seat{DeviceId(0)}}, 0, 2, 2}, {{Seat{DeviceId(4)}}, 3, 4, 1}};
  s.links = {Link()};
  s.stages = {Stage(500, 250, 375, 1000), Stage(750, 125, 250, 2000)};
  s.evaluations = {{100, 0.5, 1.5}, {300, 0.9875, 0.1}};
  s.recoveries = {{40, {"local-001", "pi"}, "workers", 0.25, 0.01, 0.02, 0.125, 1.5}};
  s.replication = {7, 1, 280, 0.5, 3.5, 1000};
  s.timeline = {{1, 0}, {2, 0.5}};
  return s;
}

std::vector<std::string> Keys(const nlohmann::ordered_json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

TEST(Summary, HasExactlyTheseKeys) {
  const auto json = nlohmann::ordered_json::parse(SummaryToJson(Sample()));
  EXPECT_THAT(Keys(json),
              ElementsAre("accuracy", "loss", "train_loss", "samples_per_s",
                          "central_processor_share", "wall_s", "weights_sha256", "steps", "epochs",
                          "model", "dataset", "schedule", "policy", "cost", "seed", "recipe",
                          "codecs", "plan", "plan_bandwidth", "plan_searches", "links", "stages",
                          "evaluations", "recoveries", "replication", "timeline"));
  EXPECT_THAT(Keys(json["codecs"]), ElementsAre("forward", "backward"));
  EXPECT_THAT(Keys(json["plan"]), ElementsAre("stages"));
  EXPECT_THAT(Keys(json["plan_bandwidth"]), ElementsAre("source", "links"));
  EXPECT_THAT(Keys(json["plan"]["stages"][0]),
              ElementsAre("device", "first_layer", "last_layer", "cap"));
  EXPECT_THAT(Keys(json["links"][0]),
              ElementsAre("codec_forward", "codec_backward", "bytes_forward", "bytes_backward",
                          "raw_bytes_forward", "raw_bytes_backward", "frames", "resent_forward",
                          "resent_backward", "bandwidth_forward_bytes_per_s",
                          "bandwidth_backward_bytes_per_s", "relayed"));
  EXPECT_THAT(Keys(json["timeline"][0]), ElementsAre("batches", "seconds"));
  EXPECT_THAT(
      Keys(json["stages"][0]),
      ElementsAre("numerics_class", "busy_share", "wait_share", "codec_share", "forward_share",
                  "backward_share", "update_share", "encode_share", "decode_share",
                  "busy_processor_share", "processor_share", "peak_rss_bytes", "memory_bytes"));
  EXPECT_THAT(Keys(json["evaluations"][0]), ElementsAre("step", "accuracy", "loss"));
  EXPECT_THAT(Keys(json["recoveries"][0]),
              ElementsAre("step", "workers", "source", "detect_s", "plan_s", "fetch_s",
                          "first_gradient_s", "caught_up_s"));
  EXPECT_THAT(Keys(json["replication"]),
              ElementsAre("count", "skipped", "step", "stall_s", "took_s", "bytes"));
}

TEST(Summary, ClassesAreThoseOfTheLastEvaluationAndOfTheTestSet) {
  RunSummary summary = Sample();
  summary.class_names = {"cat", "dog", "eel"};
  summary.evaluations.back().counts = {4, 3, {1, 1, 0, 0, 2, 0, 0, 0, 0}};
  summary.test = {300, 0.5, 0.75, {2, 2, {1, 0, 0, 1, 0, 0, 0, 0, 0}}};
  auto json = nlohmann::json::parse(SummaryToJson(summary));
  EXPECT_EQ(json["top_5"], 0.75);
  EXPECT_EQ(json["classes"][0],
            (nlohmann::json{{"name", "cat"}, {"labels", 2}, {"accuracy", 0.5}}));
  EXPECT_EQ(json["classes"][1]["accuracy"], 1);
  EXPECT_FALSE(json["classes"][2].contains("accuracy")) << "without a label there is none";
  EXPECT_EQ(json["confusion"], nlohmann::json::parse("[[1, 1, 0], [0, 2, 0], [0, 0, 0]]"));
  EXPECT_EQ(json["test"]["accuracy"], 0.5);
  EXPECT_EQ(json["test"]["confusion"][1], nlohmann::json::parse("[1, 0, 0]"));
  summary.evaluations.back().counts.confusion.clear();  // of many classes
  json = nlohmann::json::parse(SummaryToJson(summary));
  EXPECT_EQ(json["top_5"], 0.75);
  EXPECT_FALSE(json.contains("confusion"));
}

TEST(Summary, EnergySaysWhereItComesFrom) {
  RunSummary summary = Sample();
  summary.stages[0].telemetry.joules = 2;
  summary.stages[1].telemetry.joules = 2;
  summary.stages[0].telemetry.energy_source = EnergySource::kBattery;
  const auto json = nlohmann::json::parse(SummaryToJson(summary));
  EXPECT_EQ(json["joules_per_sample"], 0.5) << "of all stages";
  EXPECT_FALSE(json.contains("energy"));
  EXPECT_EQ(json["stages"][0]["joules_per_sample"], 0.25);
  EXPECT_EQ(json["stages"][0]["energy"], "battery");
  EXPECT_EQ(json["stages"][1]["energy"], "model");
}

TEST(Summary, WhatWasPredictedStandsBesideWhatWasMeasured) {
  RunSummary summary = Sample();
  summary.period = {100, 0.05, 0.04, {{0.03, 0.02}}, {{{LinkRate::Mbps(2)}, {}}}, "the link"};
  summary.searches = {3, 4, 0.5};
  const auto json = nlohmann::json::parse(SummaryToJson(summary));
  EXPECT_EQ(json["period"]["measured_s"], 0.05);
  EXPECT_EQ(json["period"]["predicted_s"], 0.04);
  EXPECT_EQ(json["period"]["cause"], "the link");
  EXPECT_EQ(json["period"]["stages"][0]["predicted_s"], 0.02);
  EXPECT_EQ(json["period"]["links"][0]["measured"]["forward_mbps"], 2);
  EXPECT_EQ(json["plan_searches"]["skipped"], 4);
}

TEST(Summary, IntegerRecipesTellTheirBits) {
  RunSummary summary = Sample();
  EXPECT_EQ(nlohmann::json::parse(SummaryToJson(summary))["recipe"], "fp32");
  summary.recipe = "niti:niti2021";
  summary.gradient_bits = "0:3/2,4:1";
  const auto json = nlohmann::json::parse(SummaryToJson(summary));
  EXPECT_EQ(json["recipe"], "niti:niti2021");
  EXPECT_EQ(json["gradient_bits"], "0:3/2,4:1");
}

TEST(Summary, TellsWhichProductsAreEmulated) {
  RunSummary summary;
  summary.recipe = "sbm:8,8,8";
  EXPECT_FALSE(nlohmann::json::parse(SummaryToJson(summary)).contains("products"));
  summary.recipe = "dorefa:8,8,8";
  EXPECT_EQ(nlohmann::json::parse(SummaryToJson(summary))["products"], "emulated");
}

TEST(Summary, TellsWhatWasPredicted) {
  RunSummary summary = Sample();
  summary.predicted_samples_per_s = 80.5;
  summary.predictor = "mlp";
  summary.stages[0].seconds = {0.25, 0.5};
  const auto json = nlohmann::json::parse(SummaryToJson(summary));
  EXPECT_EQ(json["predicted_samples_per_s"], 80.5);
  EXPECT_EQ(json["predictor"], "mlp");
  EXPECT_EQ(json["stages"][0]["predicted_s"], 0.25);
  EXPECT_EQ(json["stages"][0]["measured_s"], 0.5);
  EXPECT_FALSE(nlohmann::json::parse(SummaryToJson(Sample())).contains("predictor"));
}

TEST(Summary, DevicesHaveNames) {
  RunSummary summary = Sample();
  summary.device_names = {"local-000", "a", "b", "c", "pi-1"};
  const auto json = nlohmann::ordered_json::parse(SummaryToJson(summary));
  EXPECT_EQ(json["plan"]["stages"][1]["device"], "pi-1");
  EXPECT_EQ(json["plan"]["stages"][1]["device_number"], 4);
  EXPECT_THAT(Keys(json["plan"]["stages"][0]),
              ElementsAre("device", "first_layer", "last_layer", "cap", "device_number"));
}

TEST(Summary, HasTheValues) {
  const auto json = nlohmann::json::parse(SummaryToJson(Sample()));
  EXPECT_EQ(json["accuracy"], 0.9875);
  EXPECT_EQ(json["train_loss"], 0.2);
  EXPECT_EQ(json["samples_per_s"], 512.5);
  EXPECT_EQ(json["steps"], 300);
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["codecs"]["backward"], "stochastic:8");
  EXPECT_EQ(json["plan"]["stages"][1]["device"], 4);  // nobody said its name
  EXPECT_EQ(json["plan"]["stages"][1]["last_layer"], 4);
  EXPECT_EQ(json["plan"]["stages"][0]["cap"], 2);
  EXPECT_EQ(json["links"][0]["bytes_backward"], 20);
  EXPECT_EQ(json["links"][0]["raw_bytes_forward"], 80);
  EXPECT_EQ(json["links"][0]["frames"], 6);
  EXPECT_EQ(json["links"][0]["bandwidth_forward_bytes_per_s"], 1e6);
  EXPECT_EQ(json["links"][0]["bandwidth_backward_bytes_per_s"], 2e6);
  EXPECT_EQ(json["timeline"][1]["batches"], 2);
  EXPECT_EQ(json["timeline"][1]["seconds"], 0.5);
  EXPECT_EQ(json["stages"][1]["wait_share"], 0.125);
  EXPECT_EQ(json["stages"][1]["busy_processor_share"], 0.25);
  EXPECT_EQ(json["stages"][1]["processor_share"], 0.5);
  EXPECT_EQ(json["stages"][1]["peak_rss_bytes"], 2000);
  EXPECT_EQ(json["stages"][1]["memory_bytes"], 1500);
  EXPECT_EQ(json["evaluations"][1]["accuracy"], 0.9875);
  EXPECT_EQ(json["recoveries"][0]["workers"][1], "pi");
  EXPECT_EQ(json["recoveries"][0]["first_gradient_s"], 0.125);
}

TEST(Summary, EmptyAndDiverged) {
  RunSummary diverged;
  diverged.loss = std::numeric_limits<double>::quiet_NaN();
  diverged.train_loss = std::numeric_limits<double>::infinity();
  const auto json = nlohmann::json::parse(SummaryToJson(diverged));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["train_loss"].is_null());
  EXPECT_TRUE(json["evaluations"].is_array());
  EXPECT_TRUE(json["plan"]["stages"].is_array());
}

TEST(Summary, IsWrittenWholeOrNotAtAll) {
  ScratchDir dir;
  ASSERT_TRUE(WriteSummary(Sample(), dir / "s.json").ok());
  EXPECT_EQ(Slurp(dir / "s.json"), SummaryToJson(Sample()));
  RunSummary other = Sample();
  other.model = "other";
  absl::Status status;
  {
    FileSizeLimit limit(100);
    status = WriteSummary(other, dir / "s.json");
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Slurp(dir / "s.json"), SummaryToJson(Sample()));
  EXPECT_THAT(dir.List(), ElementsAre("s.json"));
  EXPECT_EQ(WriteSummary(other, dir / "no/s.json").code(), absl::StatusCode::kNotFound);
}

TEST(Summary, DashIsStandardOutput) {
  ::testing::internal::CaptureStdout();
  const absl::Status status = WriteSummary(Sample(), "-");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), SummaryToJson(Sample()));
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace runnel::summary_test
