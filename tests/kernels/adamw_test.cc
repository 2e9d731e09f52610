// AdamW beside LibTorch's own, and a step by hand.

#include <torch/optim/adamw.h>

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/ir/optimizers/optimizer_step.h"
#include "proto/base/random.h"

namespace runnel::adamw_test {
namespace {

constexpr double kBeta1 = 0.85, kBeta2 = 0.99, kEpsilon = 1e-6, kRate = 0.02, kDecay = 0.1;

const OptimizerStep& AdamW() { return StepOf(ParseOptimizer("adamw")->optimizer); }

StepContext ContextOf(int64_t step) {
  StepContext context;
  context.step = step;
  context.learning_rate = kRate;
  context.weight_decay = kDecay;
  context.optimizer_parameters = {kBeta1, kBeta2, kEpsilon};
  return context;
}

TEST(AdamW, FirstStepByHand) {
  float weight = 2, gradient = -3, first = 0, second = 0;
  float* const slots[] = {&first, &second};
  AdamW().update(AdamW().scalars(ContextOf(0)), &weight, &gradient, slots, 1, &weight);
  EXPECT_FLOAT_EQ(first, 0.15F * -3);
  EXPECT_FLOAT_EQ(second, 0.01F * 9);
  // Corrected moments are g and g^2: a step of the rate against the gradient's sign, and decay.
  EXPECT_NEAR(weight, 2 + 0.02 - 0.02 * 0.1 * 2, 1e-6);
}

// 100 steps down a bent valley, each at weights of its own, with noise that both share.
TEST(AdamW, IsLibTorchs) {
  constexpr int64_t kCount = 500;
  const CounterRandom random(5, RandomPurpose::kTest, 0, 0);
  std::vector<float> weights(kCount), gradients(kCount), first(kCount), second(kCount);
  for (int64_t i = 0; i < kCount; ++i) weights[i] = static_cast<float>(random.Normal(i));
  at::Tensor theirs = torch::from_blob(weights.data(), {kCount}).clone().requires_grad_();
  torch::optim::AdamW optimizer(
      {theirs},
      torch::optim::AdamWOptions(kRate).betas({kBeta1, kBeta2}).eps(kEpsilon).weight_decay(kDecay));
  const auto slope = [&](float w, int64_t step, int64_t i) {
    const auto draw = static_cast<uint64_t>((step + 1) * kCount + i);
    return w * w * w - 0.5F * w + 0.3F * static_cast<float>(random.Normal(draw));
  };
  float* const slots[] = {first.data(), second.data()};
  double moved = 0;
  for (int64_t step = 0; step < 100; ++step) {
    at::Tensor gradient = torch::empty({kCount});
    for (int64_t i = 0; i < kCount; ++i) {
      gradients[i] = slope(weights[i], step, i);
      gradient.data_ptr<float>()[i] = slope(theirs.data_ptr<float>()[i], step, i);
    }
    theirs.mutable_grad() = gradient;
    optimizer.step();
    AdamW().update(AdamW().scalars(ContextOf(step)), weights.data(), gradients.data(), slots,
                   kCount, weights.data());
    for (int64_t i = 0; i < kCount; ++i)
      ASSERT_NEAR(weights[i], theirs.data_ptr<float>()[i], 1e-5) << "step " << step << ", " << i;
  }
  for (int64_t i = 0; i < kCount; ++i)
    moved += std::abs(weights[i] - static_cast<float>(random.Normal(i)));
  EXPECT_GT(moved / kCount, 0.1);
}

}  // namespace
}  // namespace runnel::adamw_test
