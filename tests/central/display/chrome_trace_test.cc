// Traces as Perfetto reads them.

#include "central/display/chrome_trace.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/json/json_fields.h"

namespace runnel::chrome_trace_test {
namespace {

using ::testing::HasSubstr;

// Two stages; micro-batch 5 goes down and comes back.
RunTrace TwoStages() {
  RunTrace trace{1'000'000, 2'000'000'000, 40, {}};
  DeviceTrace first;
  first.device = "pi \"1\"";
  first.stage = 0;
  first.last_layer = 2;
  first.answered = true;
  first.spans = {{SpanKind::kForward, 5, 1'002'000, 4'000},
                 {SpanKind::kEncodeActivation, 5, 1'006'000, 1'000},
                 {SpanKind::kInputGradient, 5, 1'030'000, 2'500}};
  DeviceTrace last = first;
  last.device = "pi-2";
  last.stage = 1;
  last.first_layer = 3;
  last.last_layer = 5;
  last.left_out = 9;
  last.spans = {{SpanKind::kForward, 5, 1'010'000, 4'000},
                {SpanKind::kInputGradient, 5, 1'014'000, 4'000}};
  DeviceTrace spare;
  spare.device = "pi-3";
  trace.devices = {first, last, spare};
  return trace;
}

TEST(ChromeTrace, DevicesAreProcessesAndMicroBatchesArrows) {
  const Json trace = Json::parse(ChromeTrace(TwoStages()));
  EXPECT_EQ(trace["otherData"]["step"], 40);
  std::map<std::string, int> phases;
  std::vector<std::string> names;
  for (const Json& event : trace["traceEvents"]) {
    ++phases[event["ph"]];
    if (event["name"] == "process_name") names.push_back(event["args"]["name"]);
  }
  EXPECT_EQ(phases["X"], 5);
  EXPECT_EQ(phases["s"], 2) << "one arrow down, one back";
  EXPECT_EQ(phases["f"], 2);
  EXPECT_THAT(names, ::testing::ElementsAre("pi \"1\", stage 0: layers 0 to 2",
                                            "pi-2, stage 1: layers 3 to 5; 9 spans left out",
                                            "pi-3; it did not answer"));
  const std::string text = ChromeTrace(TwoStages());
  EXPECT_THAT(text,
              HasSubstr(R"("ph":"X","pid":1,"tid":1,"ts":2.000,"dur":4.000,"cat":"forward")"));
  EXPECT_THAT(text, HasSubstr(R"("ph":"X","pid":1,"tid":2,"ts":6.000)")) << "coding has its thread";
  EXPECT_THAT(text, HasSubstr(R"("ph":"s","pid":1,"tid":1,"ts":6.000,"cat":"activation")"));
  EXPECT_THAT(text, HasSubstr(R"("ph":"f","pid":2,"tid":1,"ts":10.000,"cat":"activation")"));
  EXPECT_THAT(text, HasSubstr(R"("ph":"s","pid":2,"tid":1,"ts":18.000,"cat":"gradient")"));
}

TEST(ChromeTrace, WithoutDevicesItIsStillOne) {
  EXPECT_TRUE(Json::parse(ChromeTrace({}))["traceEvents"].empty());
}

}  // namespace
}  // namespace runnel::chrome_trace_test
