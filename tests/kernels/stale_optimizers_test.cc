// Optimizers against staleness beside what they stand for: weights that are ahead of hidden ones by
// the way that the momentum leads.

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/ir/optimizers/momentum_lead.h"
#include "kernels/ir/optimizers/optimizer_step.h"
#include "proto/base/random.h"

namespace runnel::stale_optimizers_test {
namespace {

constexpr double kRate = 0.05;
constexpr double kMomentum = 0.8;

StepContext ContextOf(int64_t step, int64_t delay) {
  StepContext context;
  context.step = step;
  context.learning_rate = kRate;
  context.momentum = kMomentum;
  context.optimizer_parameters = {kMomentum, 0.99, 1e-8, static_cast<double>(delay)};
  return context;
}

const OptimizerStep& Row(const char* name) { return StepOf(ParseOptimizer(name)->optimizer); }

TEST(MomentumLead, SumsWhatIsLeftOfAChange) {
  EXPECT_DOUBLE_EQ(optimizers::MomentumLead(0.5, 0), 0.5);
  EXPECT_DOUBLE_EQ(optimizers::MomentumLead(0.5, 2), 0.875);
  EXPECT_EQ(optimizers::MomentumLead(0, 5), 0);
  EXPECT_EQ(optimizers::DelayIn(ContextOf(0, 9)), 9);
}

// Hidden weights w take steps of plain momentum. The optimizer's own are w + LEAD * (w - w before).
TEST(NagStale, StandsAheadOfPlainMomentum) {
  const OptimizerStep& row = Row("nag_stale");
  for (const int64_t delay : {0, 2, 9}) {
    const CounterRandom random(3, RandomPurpose::kTest, static_cast<uint64_t>(delay), 0);
    float weight = 2, velocity = 0;
    float* const slots[] = {&velocity};
    double hidden = 2, momentum = 0;
    double lead = 0;
    for (int64_t k = 1; k <= delay + 1; ++k) lead += std::pow(kMomentum, k);
    for (int64_t step = 0; step < 60; ++step) {
      const auto gradient = static_cast<float>(random.Normal(static_cast<uint64_t>(step)));
      row.update(row.scalars(ContextOf(step, delay)), &weight, &gradient, slots, 1, &weight);
      momentum = kMomentum * momentum + gradient;
      hidden -= kRate * momentum;
      ASSERT_NEAR(weight, hidden - lead * kRate * momentum, 1e-5) << delay << ", " << step;
    }
  }
}

// Without a delay it is Nesterov's momentum as everybody writes it.
TEST(NagStale, WithoutADelayItIsNesterovs) {
  const OptimizerStep& row = Row("nag_stale");
  float weight = 1, velocity = 0.5F, gradient = -2;
  float* const slots[] = {&velocity};
  row.update(row.scalars(ContextOf(7, 0)), &weight, &gradient, slots, 1, &weight);
  EXPECT_FLOAT_EQ(velocity, 0.8F * 0.5F - 2);
  EXPECT_NEAR(weight, 1 - kRate * (-2 + kMomentum * (0.8 * 0.5 - 2)), 1e-6);
}

TEST(NagStale, ThatLeadsNowhereIsSgd) {
  float weight = 1, velocity = 0.5F, gradient = -2;
  float plain_weight = 1, plain_velocity = 0.5F;
  float* const slots[] = {&velocity};
  float* const plain_slots[] = {&plain_velocity};
  for (int64_t step = 0; step < 20; ++step) {
    const StepContext context = ContextOf(step, optimizers::kLeadsNowhere);
    const OptimizerStep& plain = Row("sgd");
    Row("nag_stale")
        .update(Row("nag_stale").scalars(context), &weight, &gradient, slots, 1, &weight);
    plain.update(plain.scalars(context), &plain_weight, &gradient, plain_slots, 1, &plain_weight);
    ASSERT_EQ(weight, plain_weight) << step;
    ASSERT_EQ(velocity, plain_velocity) << step;
    gradient *= -0.9F;
  }
}

// The weights that gradients have in a step add up to 1 from the first step on: an unchanging
// gradient moves a weight by the rate, whatever the delay.
TEST(NadamStale, AConstantGradientMovesByTheRate) {
  const OptimizerStep& row = Row("nadam_stale");
  for (const int64_t delay : {0, 2, 9}) {
    float weight = 2, gradient = -3, first = 0, second = 0;
    float* const slots[] = {&first, &second};
    for (int64_t step = 0; step < 50; ++step) {
      const float before = weight;
      row.update(row.scalars(ContextOf(step, delay)), &weight, &gradient, slots, 1, &weight);
      ASSERT_NEAR(weight - before, kRate, 2e-6) << delay << ", " << step;
    }
  }
}

// A step by hand from moments that are there.
TEST(NadamStale, StepByHand) {
  const OptimizerStep& row = Row("nadam_stale");
  float weight = 1, gradient = 0.5F, first = 0.2F, second = 0.04F;
  float* const slots[] = {&first, &second};
  row.update(row.scalars(ContextOf(3, 1)), &weight, &gradient, slots, 1, &weight);
  const double m = 0.8 * 0.2 + 0.2 * 0.5, s = 0.99 * 0.04 + 0.01 * 0.25;
  const double ahead = (m + (0.8 + 0.64) * (m - 0.2)) / (1 - std::pow(0.8, 6));
  EXPECT_NEAR(first, m, 1e-7);
  EXPECT_NEAR(second, s, 1e-7);
  EXPECT_NEAR(weight, 1 - kRate * ahead / std::sqrt(s / (1 - std::pow(0.99, 4))), 1e-6);
}

}  // namespace
}  // namespace runnel::stale_optimizers_test
