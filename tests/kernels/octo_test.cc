// Octo: its grids of three products, and whole models trained by it.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ir/arithmetic/symmetric_grid.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/kernels/grid_training.h"
#include "tests/kernels/random_model.h"

namespace runnel::octo_test {
namespace {

// A draw of 1/2 rounds halves up: all codes, halfway points and their neighbours, at a unit of 1/4.
TEST(Octo, ADrawOfOneHalfRoundsHalfUp) {
  constexpr float kClip = 127.0f / 4;
  for (int half = -2 * 127; half < 2 * 127; ++half) {
    const float at = static_cast<float>(half) / 8;
    for (const float x : {std::nextafter(at, -100.0f), at, std::nextafter(at, 100.0f)}) {
      if (x < -kClip) continue;
      EXPECT_EQ(NoisySymmetricValue(x, 0.5f, kClip), std::floor(4.0 * x + 0.5) / 4) << x;
    }
  }
}

// The mean of many roundings is the value, weights and inputs have draws of their own, evaluation
// rounds to the nearest.
TEST(Octo, TheForwardRoundsWithoutBias) {
  constexpr int64_t kCount = 100'000;
  std::vector<float> x(kCount, 0.37f / 127);
  x[0] = -1;
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    std::vector<std::vector<float>> results;
    for (const auto& [code, draws] :
         {std::pair(OpCode::kSymmetricWeight, 2), std::pair(OpCode::kSymmetricActivation, 1)}) {
      Tensor in = Floats({10, kCount / 10}, x), out = Zeros({10, kCount / 10});
      GridRule grid = {.bits = 8, .draws = draws};
      ASSERT_TRUE(RunOp(code, {}, {&in}, {&out}, {}, 0, 0, backend.get(), {}, grid).ok());
      double sum = 0;
      for (int64_t i = 1; i < kCount; ++i) sum += out.data()[i];
      EXPECT_NEAR(sum / kCount * 127, 0.37, 0.01) << name;
      results.push_back(ValuesOf(out));
      grid.to_nearest = true;
      ASSERT_TRUE(RunOp(code, {}, {&in}, {&out}, {}, 0, 0, backend.get(), {}, grid).ok());
      EXPECT_EQ(out.data()[1], 0) << name;
    }
    EXPECT_NE(results[0], results[1]);
  }
}

// Slow and in double: clipped to 0.95 of both ends, then the nearest of 255 codes.
double SlowError(double x, double least, double largest) {
  const double low = 0.95f * least, high = 0.95f * largest;
  const double unit = std::max(std::abs(low), std::abs(high)) / 127;
  double best = 0;
  for (int code = -127; code <= 127; ++code) {
    const double clipped = std::min(std::max(x, low), high);
    if (std::abs(clipped - code * unit) < std::abs(clipped - best)) best = code * unit;
  }
  return best;
}

TEST(Octo, ErrorsAreClippedAndThenTheNearest) {
  for (const bool is_lopsided : {false, true}) {
    Tensor dy = Normal({4, 250}, 3, is_lopsided ? 1 : 2);
    for (float& x : absl::MakeSpan(dy.data(), 1000)) x = is_lopsided ? std::abs(x) + 0.1f * x : x;
    const auto [least, largest] = std::minmax_element(dy.data(), dy.data() + 1000);
    for (const char* name : kGridBackends) {
      auto backend = *MakeBackend(name, 1);
      Tensor out = Zeros({4, 250});
      ASSERT_TRUE(RunOp(OpCode::kSymmetricError, {}, {&dy}, {&out}, {}, 0, 0, backend.get(), {},
                        {.bits = 8, .is_gradient = true, .clip = 0.95f})
                      .ok());
      for (int64_t i = 0; i < 1000; ++i)
        ASSERT_NEAR(out.data()[i], SlowError(dy.data()[i], *least, *largest), 1e-6) << name;
    }
  }
}

TEST(Octo, ErrorsOfZerosStay) {
  Tensor zeros = Zeros({2, 3}), out = Normal({2, 3}, 1, 1);
  ASSERT_TRUE(RunOp(OpCode::kSymmetricError, {}, {&zeros}, {&out}, {}, 0, 0, nullptr, {},
                    {.bits = 8, .clip = 0.95f})
                  .ok());
  EXPECT_THAT(ValuesOf(out), testing::Each(0.0f));
}

// y = x + gain * compensation + offset, two samples of three elements; the sum of dy * y.
double Loss(const std::vector<double>& x, const std::vector<double>& behind,
            const std::vector<double>& dy) {
  double sum = 0;
  for (size_t i = 0; i < 6; ++i) {
    const size_t e = i % 3;
    sum += dy[i] * (x[i] + behind[e] * behind[3 + e] + behind[6 + e]);
  }
  // 0.1 / 2 of the squares of compensation and offset, 2 of 4 samples of the step.
  for (size_t e = 3; e < 9; ++e) sum += 0.05 * behind[e] * behind[e] * 2 / 4;
  return sum;
}

TEST(Octo, CompensationsGradientsAreTheSlopes) {
  const std::vector<double> x = {1, -2, 3, 0.5, 0.25, -1}, dy = {0.5, 1, -1, 2, 0.25, 0.125};
  const std::vector<double> behind = {1, 1.5, 0.5, 0.25, -0.5, 1, 0.125, 2, -1};
  const auto floats = [](const std::vector<double>& from, size_t begin, const Shape& shape) {
    const auto first = from.begin() + static_cast<int64_t>(begin);
    return Floats(shape, {first, first + shape.elements()});
  };
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    Tensor in = floats(x, 0, {2, 3, 1}), y = Zeros({2, 3, 1}), dout = floats(dy, 0, {2, 3, 1});
    Tensor gain = floats(behind, 0, {3, 1}), mu = floats(behind, 3, {3, 1});
    Tensor offset = floats(behind, 6, {3, 1});
    Tensor grads[3] = {Zeros({3, 1}), Zeros({3, 1}), Zeros({3, 1})};
    ASSERT_TRUE(
        RunOp(OpCode::kCompensate, {}, {&in, &gain, &mu, &offset}, {&y}, {}, 0, 0, backend.get())
            .ok());
    EXPECT_EQ(y.data()[4], 0.25f + 1.5f * -0.5f + 2) << name;
    StepContext context;
    context.step_labels = 4;
    ASSERT_TRUE(RunOp(OpCode::kCompensationGradient, {}, {&dout, &gain, &mu, &offset},
                      {&grads[0], &grads[1], &grads[2]}, context, 0, 0, backend.get())
                    .ok());
    for (size_t i = 0; i < 9; ++i) {
      std::vector<double> up = behind, down = behind;
      up[i] += 1e-4;
      down[i] -= 1e-4;
      EXPECT_NEAR(grads[i / 3].data()[i % 3], (Loss(x, up, dy) - Loss(x, down, dy)) / 2e-4, 1e-5)
          << name << ", " << i;
    }
    // A second micro-batch of the step adds its own.
    context.accumulate = true;
    const float before = grads[0].data()[0];
    ASSERT_TRUE(RunOp(OpCode::kCompensationGradient, {}, {&dout, &gain, &mu, &offset},
                      {&grads[0], &grads[1], &grads[2]}, context, 0, 0, backend.get())
                    .ok());
    EXPECT_EQ(grads[0].data()[0], 2 * before);
  }
}

TEST(Octo, CompensationsAreStateOfConvolutionsAlone) {
  const ModelSpec model = *MakeModel("lenet");
  const auto infos = *InferShapes(model, 2);
  const NumberFormat& format = (*FindRecipe("octo_lac"))->numbers;
  int convolutions = 0;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    const LayerInfo& info = infos[static_cast<size_t>(layer)];
    const LayerState state = InitialLayer(model, info, layer, 5, format);
    const LayerState plain = InitialLayer(model, info, layer, 5, NumberFormat());
    size_t own = 0;
    for (const TensorData& tensor : state.tensors) {
      if (own < plain.tensors.size() && tensor.name == plain.tensors[own].name) {
        EXPECT_EQ(tensor.bytes, plain.tensors[own++].bytes) << "the same draws";
        continue;
      }
      EXPECT_EQ(tensor.shape.elements(), info.op_outputs[0].elements() / 2) << tensor.name;
      convolutions += tensor.name == "0.gain" ? 1 : 0;
    }
    EXPECT_EQ(own, plain.tensors.size());
  }
  EXPECT_EQ(convolutions, 2);
}

TEST(Octo, CutsAndUpdatesChangeNoByteOfACompensatedModel) {
  ExpectCutsChangeNoByte("lenet", "octo_lac", /*other=*/"octo");
}

TEST(Octo, CutsAndUpdatesInTheBackwardChangeNoByte) {
  ExpectCutsChangeNoByte("lenet", "octo", /*other=*/"fp32");
}

TEST(Octo, LeNetLearnsOnBothBackends) { ExpectBothBackendsLearn("lenet", "octo", 12); }

}  // namespace
}  // namespace runnel::octo_test
