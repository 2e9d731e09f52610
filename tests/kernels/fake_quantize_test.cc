// Fake quantisation on whole tensors: what a backend makes of activations that lie channels-last,
// and the statistics of stochastic rounding. Single instructions: the conformance suite.

#include "kernels/ir/arithmetic/fake_quantize.h"

#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "tests/kernels/op_harness.h"

namespace runnel::fake_quantize_test {
namespace {

Instruction Of(OpCode code, std::vector<BufferIndex> inputs, BufferIndex output) {
  Instruction instruction = {code, std::move(inputs), {output}, 3, 1};
  instruction.grid.bits = 5;
  return instruction;
}

// dy -> average pool of 1 x 1, which leaves it channels-last on `cpu`, -> the quantised error, the
// quantised activation of that, and the mask, -> averages again.
std::vector<float> RunBetweenPools(const std::string& backend, int threads, const Shape& shape) {
  Program program;
  program.batch = shape[0];
  const int64_t bytes = (shape.elements() * 4 + 63) / 64 * 64;
  program.buffers.push_back({Storage::kInput, DType::kFloat32, shape});
  for (int i = 0; i < 4; ++i) {
    program.buffers.push_back({Storage::kScratch, DType::kFloat32, shape, i * bytes});
  }
  program.buffers.push_back({Storage::kOutput, DType::kFloat32, shape});
  program.scratch_bytes = 4 * bytes;
  program.parts[0] = {Of(OpCode::kAvgPoolForward, {0}, 1), Of(OpCode::kFakeQuantizeError, {1}, 2),
                      Of(OpCode::kFakeQuantizeActivation, {2}, 3),
                      Of(OpCode::kFakeQuantizeActivationGradient, {3, 1}, 4),
                      Of(OpCode::kAvgPoolForward, {4}, 5)};
  Tensor x = Normal(shape, 4, 0);
  AlignedBytes input(bytes), scratch(4 * bytes), output(bytes);
  std::memcpy(input.data(), x.bytes.data(), x.bytes.size());
  Bindings bindings;
  bindings[Storage::kInput] = input.data();
  bindings[Storage::kScratch] = scratch.data();
  bindings[Storage::kOutput] = output.data();
  auto made = *MakeBackend(backend, threads);
  auto executable = *made->Prepare(program);
  const StepContext context = {.run_seed = 9, .sequence = Sequence(7)};
  EXPECT_TRUE(executable->Run(Part::kForward, context, bindings).ok());
  const float* values = reinterpret_cast<const float*>(output.data());
  return {values, values + shape.elements()};
}

TEST(FakeQuantize, LayoutAndThreadsDoNotMatter) {
  for (const Shape& shape : {Shape{3, 5, 4, 7}, Shape{2, 17, 3, 3}, Shape{4, 3, 9}}) {
    const std::vector<float> want = RunBetweenPools("ref", 1, shape);
    for (const char* backend : {"cpu", "cpu:portable"}) {
      for (int threads : {1, 3}) {
        EXPECT_EQ(RunBetweenPools(backend, threads, shape), want) << backend << shape.ToString();
      }
    }
  }
}

// Each backend draws as `ref` does (the conformance suite), so `ref` stands for all.
TEST(FakeQuantize, ErrorsKeepTheirMean) {
  constexpr int kDraws = 20'000;
  Tensor dy = Floats({1, 5}, {0.8f, -0.37f, 0.11f, 0, -0.79f});
  for (int bits : {1, 2, 4, 8}) {
    std::vector<double> sums(5), squares(5);
    Tensor out = Zeros({1, 5});
    GridRule grid = {.bits = bits};
    for (int64_t draw = 0; draw < kDraws; ++draw) {
      const StepContext context = {.run_seed = 5, .sequence = Sequence(draw)};
      ASSERT_TRUE(
          RunOp(OpCode::kFakeQuantizeError, {}, {&dy}, {&out}, context, 0, 0, nullptr, {}, grid)
              .ok());
      for (int i = 0; i < 5; ++i) {
        sums[i] += out.data()[i];
        squares[i] += std::pow(out.data()[i] - dy.data()[i], 2);
      }
    }
    const double step = 2 * 0.8 / GridSteps(bits);
    for (int i = 0; i < 5; ++i) {
      // Stochastic rounding between two codes has at most a quarter of a squared step.
      EXPECT_LE(squares[i] / kDraws, step * step / 4 * 1.02) << bits;
      EXPECT_NEAR(sums[i] / kDraws, dy.data()[i], 4 * step / 2 / std::sqrt(kDraws)) << bits;
    }
    EXPECT_NEAR(squares[0], 0, 1e-9) << "the largest is a code of its own";
  }
}

TEST(FakeQuantize, SamplesWithoutAScaleStayAsTheyAre) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  Tensor dy = Floats({4, 2}, {0, 0, infinity, 1, 2, nan, 1e-38f, -1e-38f});
  for (const char* name : {"ref", "cpu", "cpu:portable"}) {
    auto backend = *MakeBackend(name, 1);
    Tensor out = Zeros({4, 2});
    ASSERT_TRUE(RunOp(OpCode::kFakeQuantizeError, {}, {&dy}, {&out}, {}, 0, 0, backend.get(), {},
                      {.bits = 4})
                    .ok());
    EXPECT_EQ(out.bytes, dy.bytes) << name;
  }
}

// The weights v = tanh(w) / T without their rounding, which gradients pass straight through.
TEST(FakeQuantize, WeightGradientIsTheDerivative) {
  Tensor w = Normal({3, 7}, 1, 0), dv = Normal({21}, 1, 1), dw = Zeros({3, 7});
  w.data()[4] = -3.5f;  // the largest
  const auto loss = [&] {
    double largest = 0, sum = 0;
    for (int i = 0; i < 21; ++i)
      largest = std::max(largest, std::abs(std::tanh(double{w.data()[i]})));
    for (int i = 0; i < 21; ++i) sum += dv.data()[i] * std::tanh(double{w.data()[i]}) / largest;
    return sum;
  };
  for (const char* name : {"ref", "cpu", "cpu:portable"}) {
    auto backend = *MakeBackend(name, 1);
    ASSERT_TRUE(RunOp(OpCode::kFakeQuantizeWeightGradient, {}, {&dv, &w}, {&dw}, {}, 0, 0,
                      backend.get(), {}, {.bits = 3})
                    .ok());
    for (int i = 0; i < 21; ++i) {
      const float kept = w.data()[i];
      w.data()[i] = kept + 1e-3f;
      const double above = w.data()[i], loss_above = loss();
      w.data()[i] = kept - 1e-3f;
      const double below = w.data()[i], loss_below = loss();
      w.data()[i] = kept;
      EXPECT_NEAR(dw.data()[i], (loss_above - loss_below) / (above - below), 1e-4) << name << i;
    }
  }
}

}  // namespace
}  // namespace runnel::fake_quantize_test
