#include <cmath>

#include "gtest/gtest.h"
#include "proto/base/training/rates/rate.h"

namespace runnel::cosine_test {
namespace {

constexpr double kPi = 3.14159265358979323846;

TEST(CosineRate, GoesAlongHalfAWaveBehindTheWarmUp) {
  TrainingSettings settings;
  settings.learning_rate = 0.5;
  settings.run_steps = 50;
  settings.warm_up_steps = 10;
  settings.rate = "cosine:0.1";
  for (int64_t step = 0; step < 50; ++step) {
    const double progress = step < 10 ? 0 : static_cast<double>(step - 10) / 40;
    const double share = 0.1 + 0.9 * (1 + std::cos(kPi * progress)) / 2;
    EXPECT_NEAR(RunRate(settings, 0, step), 0.5 * share, 1e-9) << step;
    const double warm_up = step < 10 ? static_cast<double>(step + 1) / 10 : 1;
    EXPECT_NEAR(StepRate(settings, 0, step, 1, 1), 0.5 * share * warm_up, 1e-9) << step;
  }
  EXPECT_NEAR(RunRate(settings, 0, 50), 0.05, 1e-9);
  settings.rate = "cosine";
  EXPECT_NEAR(RunRate(settings, 0, 50), 0, 1e-9);
  EXPECT_NEAR(RunRate(settings, 0, 30), 0.25, 1e-9);
}

TEST(CosineRate, TellsWhatItsFloorMayBe) {
  EXPECT_EQ(ParseRate("cosine:1.5").status().message(),
            "rate 'cosine:1.5': FLOOR must be at most 1");
  EXPECT_EQ(ParseRate("cosine:-1").status().message(),
            "rate 'cosine:-1': FLOOR must be at least 0");
}

}  // namespace
}  // namespace runnel::cosine_test
