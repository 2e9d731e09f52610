// Every row of the table of optimizers: what all code outside of kernels/ir/optimizers relies on.

#include <algorithm>
#include <cstring>

#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/optimizers/optimizer_step.h"
#include "kernels/ir/program.h"
#include "kernels/ir/recipe.h"
#include "proto/base/random.h"
#include "tests/kernels/op_harness.h"

namespace runnel::optimizer_test {
namespace {

constexpr int64_t kCount = 1003;

// Weights, gradients and slots of one optimizer, and a step of them.
struct Operands {
  std::vector<float> weights, gradients;
  std::vector<std::vector<float>> slots;

  explicit Operands(const OptimizerStep& step, float scale = 1) {
    const CounterRandom random(1, RandomPurpose::kTest, 0, 0);
    uint64_t next = 0;
    const auto draw = [&](bool positive) {
      std::vector<float> values(kCount);
      for (float& value : values) {
        value = scale * static_cast<float>(random.Normal(next++));
        if (positive) value = std::abs(value);
      }
      return values;
    };
    weights = draw(false);
    gradients = draw(false);
    for (size_t k = 0; k < step.optimizer->slots().size(); ++k) slots.push_back(draw(k > 0));
  }

  void Step(const OptimizerStep& step, const StepContext& context, int64_t begin, int64_t end) {
    std::vector<float*> at;
    for (std::vector<float>& slot : slots) at.push_back(slot.data() + begin);
    step.update(step.scalars(context), weights.data() + begin, gradients.data() + begin, at.data(),
                end - begin, weights.data() + begin);
  }

  bool operator==(const Operands& other) const {
    return weights == other.weights && slots == other.slots;
  }
};

StepContext ContextOf(const OptimizerStep& step, int64_t number = 0) {
  StepContext context;
  context.step = number;
  context.learning_rate = 0.05;
  context.momentum = 0.9;
  context.weight_decay = 0.01;
  size_t i = 0;
  for (const ChoiceParameter& parameter : step.optimizer->choice.parameters())
    context.optimizer_parameters[i++] = parameter.fallback;
  return context;
}

class EveryOptimizer : public ::testing::TestWithParam<const OptimizerStep*> {
 protected:
  const OptimizerStep& step_ = *GetParam();
};

TEST_P(EveryOptimizer, StandsWhereItsRowStands) {
  EXPECT_EQ(&StepOf(step_.optimizer), &step_);
  EXPECT_LE(step_.optimizer->slots().size(), kMostSlots);
}

// Steps of single tensors, and what a processor has of them, give the bytes of the whole.
TEST_P(EveryOptimizer, SlicesGiveTheBytesOfTheWhole) {
  Operands whole(step_), sliced(step_);
  const StepContext context = ContextOf(step_, 3);
  whole.Step(step_, context, 0, kCount);
  for (int64_t at = 0; at < kCount; at += 37)
    sliced.Step(step_, context, at, std::min(at + 37, kCount));
  EXPECT_TRUE(whole == sliced);
  EXPECT_FALSE(whole == Operands(step_)) << "nothing moved";
}

// Padding between tensors stays zero for ever.
TEST_P(EveryOptimizer, ZerosStayZeros) {
  Operands zeros(step_, 0), before(step_, 0);
  for (int64_t number = 0; number < 5; ++number)
    zeros.Step(step_, ContextOf(step_, number), 0, kCount);
  EXPECT_TRUE(zeros == before);
}

// A look-ahead of the distance of one step from slots that a step has left, without decay, is that
// step where the next gradient leaves the slots as they are.
TEST_P(EveryOptimizer, ALookAheadOfNoDistanceStays) {
  const Operands o(step_);
  std::vector<const float*> slots;
  for (const std::vector<float>& slot : o.slots) slots.push_back(slot.data());
  const OptimizerScalars scalars = step_.scalars(ContextOf(step_, 9));
  std::vector<float> ahead(kCount);
  step_.look_ahead(scalars, o.weights.data(), slots.data(), 0, kCount, ahead.data());
  EXPECT_EQ(ahead, o.weights);
  step_.look_ahead(scalars, o.weights.data(), slots.data(), 0.5F, kCount, ahead.data());
  EXPECT_NE(ahead, o.weights);
  for (float value : ahead) EXPECT_TRUE(std::isfinite(value));
}

// Nothing is known before the first step: the forward takes finite weights all the same.
TEST_P(EveryOptimizer, ALookAheadBeforeTheFirstStepIsFinite) {
  const Operands zeros(step_, 0);
  std::vector<const float*> slots;
  for (const std::vector<float>& slot : zeros.slots) slots.push_back(slot.data());
  std::vector<float> ahead(kCount);
  step_.look_ahead(step_.scalars(ContextOf(step_, -1)), zeros.weights.data(), slots.data(), 0.5F,
                   kCount, ahead.data());
  EXPECT_EQ(ahead, zeros.weights);
}

// Elementwise operations without contraction: no instruction set rounds otherwise.
TEST_P(EveryOptimizer, EveryInstructionSetGivesTheBytesOfRef) {
  for (const char* name : {"cpu", "cpu:avx512", "cpu:avx2", "cpu:portable"}) {
    auto backend = MakeBackend(name, 1);
    if (!backend.ok()) continue;  // another machine's
    const Operands start(step_);
    Operands want = start;
    const StepContext context = ContextOf(step_, 2);
    want.Step(step_, context, 0, kCount);
    Program program;
    Instruction update;
    update.code = OpCode::kOptimizerUpdate;
    update.optimizer = &step_;
    AlignedBytes weights(kCount * 4), gradients(kCount * 4), updated(kCount * 4);
    const int64_t pitch = (kCount * 4 + 63) / 64 * 64;
    AlignedBytes slots(pitch * static_cast<int64_t>(start.slots.size()));
    const auto add = [&](Storage storage, int64_t offset) {
      program.buffers.push_back({storage, DType::kFloat32, {kCount}, offset});
      return static_cast<BufferIndex>(program.buffers.size()) - 1;
    };
    update.inputs = {add(Storage::kParameters, 0), add(Storage::kGradients, 0)};
    for (size_t k = 0; k < start.slots.size(); ++k) {
      const auto offset = static_cast<int64_t>(k) * pitch;
      update.inputs.push_back(add(Storage::kSlots, offset));
      std::memcpy(slots.data() + offset, start.slots[k].data(), kCount * 4);
    }
    update.outputs = {add(Storage::kNewParameters, 0)};
    program.parts[static_cast<int>(Part::kUpdate)].push_back(update);
    std::memcpy(weights.data(), start.weights.data(), kCount * 4);
    std::memcpy(gradients.data(), start.gradients.data(), kCount * 4);
    Bindings bindings;
    bindings[Storage::kParameters] = weights.data();
    bindings[Storage::kGradients] = gradients.data();
    bindings[Storage::kSlots] = slots.data();
    bindings[Storage::kNewParameters] = updated.data();
    auto executable = (*backend)->Prepare(program);
    ASSERT_TRUE(executable.ok()) << executable.status();
    ASSERT_TRUE((*executable)->Run(Part::kUpdate, context, bindings).ok());
    EXPECT_EQ(std::memcmp(updated.data(), want.weights.data(), kCount * 4), 0) << name;
    for (size_t k = 0; k < start.slots.size(); ++k) {
      EXPECT_EQ(std::memcmp(slots.data() + static_cast<int64_t>(k) * pitch, want.slots[k].data(),
                            kCount * 4),
                0)
          << name << ", slot " << k;
    }
  }
}

std::vector<const OptimizerStep*> Steps() {
  std::vector<const OptimizerStep*> steps;
  for (const OptimizerStep& step : OptimizerSteps()) steps.push_back(&step);
  return steps;
}

INSTANTIATE_TEST_SUITE_P(Table, EveryOptimizer, ::testing::ValuesIn(Steps()), [](const auto& info) {
  return std::string(info.param->optimizer->choice.name);
});

}  // namespace
}  // namespace runnel::optimizer_test
