#include "central/cli/status_text.h"

#include "central/display/state_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/json/json_fields.h"

namespace runnel::status_text_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ShownRun MeasuredRun() {
  ShownRun run;
  run.view.phase = RunPhase::kTraining;
  run.view.samples_per_s = 100;
  run.view.period.measured_seconds = 0.010;
  run.view.period.predicted_seconds = 0.010;
  run.view.period.parts = {.slowest = "pi-1\n",
                           .computing_seconds = 0.006,
                           .bubble_seconds = 0.0005,
                           .schedule_seconds = 0.0005,
                           .links_seconds = 0.002,
                           .evaluation_seconds = 0.001,
                           .memory_seconds = 0.003};
  return run;
}

TEST(WhyText, SaysNothingIsKnownBeforeAMeasurement) {
  ShownRun run = MeasuredRun();
  run.view.period = {};
  EXPECT_THAT(WhyText(StateJson(run)).value(), HasSubstr("training: nothing is known yet"));
}

// Of a run that measures nothing the shares are known all the same.
TEST(WhyText, ABadCutShowsWithoutAMeasurement) {
  Json state = ParseJson(StateJson(MeasuredRun())).value();
  state.erase("parts");
  const auto share = [](const char* device, double busy) {
    return Json{{"device", device}, {"busy_share", busy}, {"wait_share", 0.9 - busy}};
  };
  state["stages"] = {share("local", 0.3), share("pi-1", 0.85), share("pi-2", 0.4)};
  std::string text = WhyText(DumpJson(state)).value();
  EXPECT_THAT(text, HasSubstr("\n  pi-1: computes 85 % of the time, waits 5 %"));
  EXPECT_THAT(text, HasSubstr("\npi-1 computes much longer than the others"));
  state["stages"] = {share("local", 0.7), share("pi-1", 0.85), share("pi-2", 0.6)};
  text = WhyText(DumpJson(state)).value();
  EXPECT_THAT(text, HasSubstr("nothing stands out"));
}

TEST(WhyText, PartsAndWhatHelps) {
  ShownRun run = MeasuredRun();
  EXPECT_THAT(WhyText(StateJson(run)).value(), HasSubstr("nothing stands out"));
  run.view.period.parts.helps = {{"a faster link between a and b", 0.008}};
  const std::string text = WhyText(StateJson(run)).value();
  EXPECT_THAT(text, HasSubstr("10.000 ms a micro-batch, 100 samples/s:"));
  EXPECT_THAT(text, HasSubstr("computing       6.000 ms   60 %  pi-1\\n computes longest"));
  EXPECT_THAT(text, HasSubstr("links           2.000 ms   20 %"));
  EXPECT_THAT(text, HasSubstr("bubble          0.500 ms    5 %"));
  EXPECT_THAT(text, HasSubstr("schedule        0.500 ms    5 %"));
  EXPECT_THAT(text, HasSubstr("evaluation      1.000 ms   10 %"));
  EXPECT_THAT(text, HasSubstr("memory          3.000 ms   30 %  of these"));
  EXPECT_THAT(text, HasSubstr("a faster link between a and b: 8.000 ms, +25 % samples/s"));
  EXPECT_THAT(text, Not(HasSubstr("nothing stands out")));
}

TEST(WhyText, AStateOfAnotherVersionIsOneLine) {
  EXPECT_THAT(std::string(WhyText(R"({"parts": {}})").status().message()),
              HasSubstr("central is of another version"));
  EXPECT_FALSE(WhyText("no JSON").ok());
}

}  // namespace
}  // namespace runnel::status_text_test
