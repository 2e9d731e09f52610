#include "kernels/backends/host/fixed_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/backends/host/draws.h"
#include "kernels/ir/arithmetic/fixed_point.h"
#include "kernels/ir/arithmetic/fixed_width.h"
#include "kernels/ir/arithmetic/symmetric_grid.h"

namespace runnel::host {
namespace {

constexpr int kWidthOfFirst = 8;
constexpr double kPenalty = 0.1;
constexpr int kRateBits = 10, kSlotBits = 13;

// What no training made, as in measurements on random numbers, counts as not measured yet.
WidthState LoadWidths(const float* from) {
  WidthState state;
  std::memcpy(static_cast<void*>(&state), from, sizeof(state));
  return IsValid(state) ? state : WidthState();
}

// The learning rate as the step has it.
double FixedRate(double rate) {
  if (rate <= 0) return rate;
  return std::max(FixedValue(rate, kRateBits), std::ldexp(1.0, 1 - kRateBits));
}

}  // namespace

double PowerOf(float largest) {
  return largest > 0 && std::isfinite(largest) ? NearestPower(largest) : 0;
}

StepGrid StepsOf(const GridRule& grid) {
  StepGrid steps = StepsOfPower(1, grid.bits);
  if (grid.is_open) steps.top = std::numeric_limits<double>::infinity();
  return steps;
}

std::optional<StepGrid> AdaptedSteps(const float* x, int64_t count, const float* read,
                                     float* kept) {
  WidthState state;
  if (read != nullptr) state = LoadWidths(read);
  if (kept != nullptr) {
    state = NextWidths(LoadWidths(kept), x, count);
    std::memcpy(kept, &state, sizeof(state));
  }
  if (state.bits != 0)
    return StepsOfWidth(static_cast<int>(state.bits), static_cast<int>(state.exponent));
  const float largest = LargestMagnitude(x, count);
  if (!std::isfinite(largest)) return std::nullopt;
  return StepsOfWidth(kWidthOfFirst, WidthExponent(largest, kWidthOfFirst));
}

void Compensate(const Compensation& behind, const float* x, int64_t count, float* y) {
  for (int64_t at = 0; at < count; at += behind.size) {
    for (int64_t i = 0; i < behind.size; ++i)
      y[at + i] = x[at + i] + behind.gain[i] * behind.compensation[i] + behind.offset[i];
  }
}

void CompensationGradient(const Compensation& behind, const StepContext& context, const float* dy,
                          int64_t count, bool adds, const CompensationGradients& gradients) {
  const auto samples = static_cast<double>(count / behind.size);
  const auto penalty = static_cast<float>(kPenalty * context.loss_scale * samples /
                                          static_cast<double>(context.step_labels));
  for (int64_t i = 0; i < behind.size; ++i) {
    float sum = 0;
    for (int64_t at = i; at < count; at += behind.size) sum += dy[at];
    const float gain = behind.compensation[i] * sum;
    const float compensation = behind.gain[i] * sum + penalty * behind.compensation[i];
    const float offset = sum + penalty * behind.offset[i];
    gradients.gain[i] = adds ? gradients.gain[i] + gain : gain;
    gradients.compensation[i] = adds ? gradients.compensation[i] + compensation : compensation;
    gradients.offset[i] = adds ? gradients.offset[i] + offset : offset;
  }
}

void FixedUpdate(const Instruction& instruction, const StepContext& context, const float* weights,
                 const float* gradients, float* const* slots, int64_t count, float* updated) {
  const GridRule& grid = instruction.grid;
  const OptimizerStep& step = *instruction.optimizer;
  if (grid.bits == 32) {
    step.update(step.scalars(context), weights, gradients, slots, count, updated);
    return;
  }
  StepContext fixed = context;
  fixed.learning_rate = FixedRate(context.learning_rate);
  std::vector<float> constant;
  const double power = grid.draws > 0 ? PowerOf(LargestMagnitude(gradients, count)) : 0;
  if (power != 0) {
    Draws draws(instruction, context.run_seed, RandomPurpose::kRounding, grid.draws, context.step);
    constant.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      constant.push_back(static_cast<float>(ConstantGradient(gradients[i], power, draws.Next())));
    gradients = constant.data();
    fixed.loss_scale = fixed.gradient_factor = 1;
  }
  step.update(step.scalars(fixed), weights, gradients, slots, count, updated);
  const StepGrid steps = StepsOf(grid);
  for (int64_t i = 0; i < count; ++i) updated[i] = steps.ValueOf(updated[i]);
  for (size_t k = 0; k < step.optimizer->slots().size(); ++k) {
    for (int64_t i = 0; i < count; ++i)
      slots[k][i] = static_cast<float>(FixedValue(slots[k][i], kSlotBits));
  }
}

}  // namespace runnel::host
