// Rates that follow the length of the run.

#include <cmath>

#include "gtest/gtest.h"
#include "proto/base/training/rates/rate.h"

namespace runnel::run_rates_test {
namespace {

TEST(OneCycleRate, HasTheStepsOfPyTorch) {
  TrainingSettings settings;
  settings.learning_rate = 0.5;
  settings.run_steps = 100;
  settings.rate = "one_cycle";
  // torch.optim.lr_scheduler.OneCycleLR(max_lr=0.5, total_steps=100), PyTorch 1.13.
  EXPECT_NEAR(RunRate(settings, 0, 0), 0.02, 1e-9);
  EXPECT_NEAR(RunRate(settings, 0, 10), 0.147582, 1e-6);
  EXPECT_NEAR(RunRate(settings, 0, 29), 0.5, 1e-9);
  EXPECT_NEAR(RunRate(settings, 0, 64), 0.250001, 1e-6);
  EXPECT_NEAR(RunRate(settings, 0, 99), 2e-6, 1e-9);
  settings.rate = "one_cycle:0.5,10,100";
  EXPECT_NEAR(RunRate(settings, 0, 0), 0.05, 1e-9);
  EXPECT_NEAR(RunRate(settings, 0, 49), 0.5, 1e-9);
  EXPECT_NEAR(RunRate(settings, 0, 99), 0.0005, 1e-9);
  // A run of one step, and one that a resumed run goes beyond.
  EXPECT_NEAR(RunRate(settings, 0, 150), 0.0005, 1e-9);
  settings.run_steps = 1;
  EXPECT_TRUE(std::isfinite(RunRate(settings, 0, 0)));
}

TEST(MultiStepRate, FallsAtSharesOfTheRun) {
  TrainingSettings settings;
  settings.learning_rate = 1;
  settings.milestone_factor = 0.5;
  settings.run_steps = 40;
  settings.rate = "multi_step";
  EXPECT_EQ(RunRate(settings, 0, 19), 1);
  EXPECT_EQ(RunRate(settings, 0, 20), 0.5);
  EXPECT_EQ(RunRate(settings, 0, 29), 0.5);
  EXPECT_EQ(RunRate(settings, 0, 39), 0.25);
  settings.rate = "multi_step:0.25,0.5,0.9";
  EXPECT_EQ(RunRate(settings, 0, 9), 1);
  EXPECT_EQ(RunRate(settings, 0, 36), 0.125);
  EXPECT_EQ(ParseRate("multi_step:2").status().message(),
            "rate 'multi_step:2': SHARE must be at most 1");
}

}  // namespace
}  // namespace runnel::run_rates_test
