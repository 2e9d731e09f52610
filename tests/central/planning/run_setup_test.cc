// What plans and predictions charge to devices whose processor others use too.

#include "central/planning/run_setup.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace runnel {
namespace {

using Rows = std::vector<DeviceTimes>;

constexpr double kLayerSeconds = 0.004;

RunSetup TwoWorkers(const std::string& bits = "") {
  RunSettings settings;
  settings.model = "lenet";
  settings.dataset = "synthetic_digits";
  settings.local_workers = 2;
  settings.schedule = "async_1f1b";
  settings.policy = "accept";
  settings.bits = bits;
  return SetUpRun(settings).value();
}

Rows Layers(const RunSetup& setup, double first, double second) {
  const auto layers = static_cast<size_t>(setup.model.layer_count());
  return {DeviceTimes::ByLayer(std::vector<double>(layers, first)),
          DeviceTimes::ByLayer(std::vector<double>(layers, second))};
}

// Of a cut after `last`, what a micro-batch takes.
double Period(const RunSetup& setup, int last, const Rows& seconds, const Conditions& conditions) {
  Plan plan = PlanFor(setup, Generation(1), {0, 1}, seconds).value();
  plan.stages[0].last_layer = last;
  plan.stages[1].first_layer = last + 1;
  return PredictPeriod(setup, plan, seconds, conditions).value();
}

Conditions Shares(double first, double second) {
  Conditions conditions;
  conditions.processor_shares = {first, second};
  return conditions;
}

// Of the stage that everything waits for, at these shares.
double Charged(const RunSetup& setup, int last, const Rows& seconds, double first, double second) {
  return Period(setup, last, seconds, Shares(first, second)) -
         Period(setup, last, seconds, Shares(1, 1));
}

TEST(RunSetup, DevicesWithAProcessorOfTheirOwnPayNothingForFrames) {
  const RunSetup setup = TwoWorkers();
  const Rows seconds = Layers(setup, kLayerSeconds, kLayerSeconds);
  const double free = Period(setup, 1, seconds, {});
  EXPECT_EQ(Period(setup, 1, seconds, Shares(1, 1)), free);
  EXPECT_EQ(Period(setup, 1, seconds, Shares(0.95, 0.9)), free);
  EXPECT_GT(Period(setup, 1, seconds, Shares(0.95, 0.8)), free);
}

TEST(RunSetup, TheSmallerTheShareTheMoreFramesTake) {
  const RunSetup setup = TwoWorkers();
  const Rows seconds = Layers(setup, kLayerSeconds, kLayerSeconds);
  // The second stage, four layers of six, is what counts.
  const double half = Charged(setup, 1, seconds, 0.5, 0.5);
  EXPECT_GT(half, 2 * 0.2e-3);  // an activation and its gradient, at half speed
  EXPECT_NEAR(Charged(setup, 1, seconds, 0.25, 0.25), 2 * half, 1e-7);
  // The same layers on a device that is twice as slow: so is its transport.
  const Rows slow = Layers(setup, kLayerSeconds, 2 * kLayerSeconds);
  EXPECT_NEAR(Charged(setup, 1, slow, 0.5, 0.25), 2 * half, 1e-7);
  // A device without a share beside one with: it is reckoned from the first's whole processor.
  EXPECT_NEAR(Charged(setup, 1, slow, 1, 0.5), half, 1e-7);
}

TEST(RunSetup, TheFirstDevicePaysForCentralToo) {
  const RunSetup setup = TwoWorkers();
  const Rows seconds = Layers(setup, kLayerSeconds, kLayerSeconds);
  EXPECT_GT(Charged(setup, 2, seconds, 0.5, 1), Charged(setup, 1, seconds, 0.5, 0.5));
}

// A device that turned out slower computes slower; what frames took at the profile they take.
TEST(RunSetup, FramesCostWhatTheyCostAtTheProfile) {
  const RunSetup setup = TwoWorkers();
  const Rows seconds = Layers(setup, kLayerSeconds, kLayerSeconds);
  const double half = Charged(setup, 1, seconds, 0.5, 0.5);
  const Rows corrected = Layers(setup, kLayerSeconds, 3 * kLayerSeconds);
  Conditions conditions = Shares(0.5, 0.5);
  const double layers = setup.model.layer_count();
  conditions.profiled_seconds = {layers * kLayerSeconds, layers * kLayerSeconds};
  EXPECT_NEAR(Period(setup, 1, corrected, conditions) - Period(setup, 1, corrected, {}), half,
              1e-7);
}

// On a fast link bytes are worth coding only where they take a processor that computes.
TEST(RunSetup, BitsFollowWhatBytesTakeOfAProcessor) {
  RunSetup setup = TwoWorkers("bandwidth");
  setup.codec_seconds_per_byte = 1e-10;
  const Rows seconds = Layers(setup, kLayerSeconds / 10, kLayerSeconds / 10);
  const auto codec = [&](const Conditions& conditions) {
    return PlanFor(setup, Generation(1), {0, 1}, seconds, conditions)
        .value()
        .links[0]
        .codec_forward;
  };
  EXPECT_EQ(codec(Shares(1, 1)), "identity");
  EXPECT_NE(codec(Shares(0.5, 0.5)), "identity");
  setup.codec_seconds_per_byte = 1e-8;  // coding takes more of it than sending
  EXPECT_EQ(codec(Shares(0.5, 0.5)), "identity");
}

}  // namespace
}  // namespace runnel
