// Weights that the OpenCL backend's products read as halves: what they compute, that they follow
// the weights, and that integers do not see them. Skipped where there is no device.

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/opencl/opencl_backend.h"
#include "kernels/backends/ref/ref_backend.h"
#include "partition/zoo/zoo.h"
#include "tests/kernels/op_harness.h"
#include "tests/kernels/opencl/half_floats.h"
#include "tests/kernels/opencl/opencl_faults.h"
#include "tests/kernels/opencl/uneven_conv.h"
#include "tests/kernels/program_bench.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::opencl::opencl_half_test {
namespace {

using ::testing::HasSubstr;

float ToHalf(float value) { return static_cast<float>(RoundToHalf(value)); }

class OpenClHalfTest : public testing::Test {
 protected:
  void SetUp() override {
    auto singles = MakeBackendWith({});
    if (!singles.ok()) GTEST_SKIP() << "no OpenCL here: " << singles.status().message();
    singles_ = *std::move(singles);
    auto halves = MakeBackendWith({.weights = "fp16"});
    ASSERT_TRUE(halves.ok()) << halves.status();
    halves_ = *std::move(halves);
    ref_ = *MakeRefBackend(1);
  }

  std::unique_ptr<Backend> singles_, halves_, ref_;
};

struct Case {
  OpCode code;
  Tensor other, weight, result;  // other: the input, or the output's gradient
  OpSpec op;
};

std::vector<Case> Cases() {
  const UnevenConv conv;
  OpSpec linear;
  linear.kind = OpKind::kLinear;
  linear.out_channels = 35;
  const Tensor x = Normal(conv.x, 1, 1), weight = Normal(conv.weight, 1, 2);
  const Tensor dy = Normal(conv.y, 1, 4);
  const Tensor flat = Normal({19, 70}, 1, 5), matrix = Normal({35, 70}, 1, 6);
  const Tensor dflat = Normal({19, 35}, 1, 7);
  std::vector<Case> cases = {{OpCode::kConvForward, x, weight, dy, conv.op},
                             {OpCode::kConvInputGradient, dy, weight, x, conv.op},
                             {OpCode::kLinearForward, flat, matrix, dflat, linear},
                             {OpCode::kLinearInputGradient, dflat, matrix, flat, linear}};
  // Halves below 2^-14 have fewer bits.
  for (Case& one : cases) {
    for (int64_t i = 0; i < one.weight.shape.elements(); i += 5) one.weight.data()[i] *= 0x1p-15F;
  }
  return cases;
}

std::vector<float> Compute(Case one, Backend& backend) {
  const absl::Status status =
      RunOp(one.code, one.op, {&one.other, &one.weight}, {&one.result}, {}, 0, 0, &backend);
  EXPECT_TRUE(status.ok()) << status;
  return {one.result.data(), one.result.data() + one.result.shape.elements()};
}

Case Mapped(Case one, float (*weight)(float), float (*other)(float)) {
  for (int64_t i = 0; i < one.weight.shape.elements(); ++i)
    one.weight.data()[i] = weight(one.weight.data()[i]);
  for (int64_t i = 0; i < one.other.shape.elements(); ++i)
    one.other.data()[i] = other(one.other.data()[i]);
  return one;
}

TEST_F(OpenClHalfTest, AProductHasTheBytesOfOneWhoseWeightsWereRoundedToHalvesBefore) {
  const auto same = [](float value) { return value; };
  for (const Case& one : Cases()) {
    const std::vector<float> got = Compute(one, *halves_);
    EXPECT_EQ(got, Compute(Mapped(one, ToHalf, same), *singles_)) << Name(one.code);
    EXPECT_NE(got, Compute(one, *singles_)) << Name(one.code) << ": no weight was rounded";
  }
}

TEST_F(OpenClHalfTest, HalvesThatAreReadAsAnImageGiveTheSameBytes) {
  const std::string tile = "4x4 by 8x8, depth 8, vector 4, weights image";
  auto images = MakeBackendWith({.tile = tile, .weights = "fp16"});
  // The text of a tile that the device does not have.
  if (absl::IsInvalidArgument(images.status())) GTEST_SKIP() << images.status().message();
  ASSERT_TRUE(images.ok()) << images.status();
  for (const Case& one : Cases())
    EXPECT_EQ(Compute(one, **images), Compute(one, *halves_)) << Name(one.code);
}

// A weight errs by 2^-11 of itself, or by 2^-25; a sum of n terms by n roundings of their
// magnitudes.
TEST_F(OpenClHalfTest, AProductIsThatOfRefWithinTheRoundingOfItsWeights) {
  const auto magnitude = [](float value) { return std::abs(value); };
  const auto one_each = [](float) { return 1.0F; };
  for (const Case& one : Cases()) {
    const std::vector<float> got = Compute(one, *halves_), want = Compute(one, *ref_);
    const std::vector<float> terms = Compute(Mapped(one, magnitude, magnitude), *ref_);
    const std::vector<float> others = Compute(Mapped(one, one_each, magnitude), *ref_);
    const double relative = 0x1p-11 + 200 * 0x1p-23;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(std::abs(double{got[i]} - want[i]), relative * terms[i] + 0x1p-25 * others[i])
          << Name(one.code) << " at " << i;
    }
  }
}

// y0 = x W; W = other; y1 = x W. Written by the buffer of W itself, or by another with its bytes.
struct WeightThatChanges {
  WeightThatChanges(bool is_written, bool by_view) {
    const auto bytes = [](Tensor tensor) { return tensor.bytes; };
    const Shape shape = {35, 70};
    const BufferIndex x =
        bench.AddGiven({Storage::kInput, DType::kFloat32, {19, 70}}, bytes(Normal({19, 70}, 1, 5)));
    const BufferIndex weight =
        bench.AddGiven({Storage::kStash, DType::kFloat32, shape}, bytes(Normal(shape, 1, 6)));
    const BufferIndex other =
        bench.AddGiven({Storage::kParameters, DType::kFloat32, shape}, bytes(Normal(shape, 1, 8)));
    const auto product = [&] {
      OpSpec& op = bench
                       .Emit(OpCode::kLinearForward, {x, weight},
                             bench.Add({Storage::kOutput, DType::kFloat32, {19, 35}}))
                       .attributes;
      op.kind = OpKind::kLinear;
      op.out_channels = 35;
    };
    product();
    if (is_written) bench.Emit(OpCode::kCopy, {other}, by_view ? bench.View(weight) : weight);
    product();
  }

  ProgramBench bench;
};

// Of the two products, apart.
std::vector<std::vector<float>> Both(const std::vector<std::byte>& output) {
  std::vector<float> all(output.size() / sizeof(float));
  std::memcpy(all.data(), output.data(), output.size());
  const auto half = static_cast<ptrdiff_t>(all.size() / 2);
  return {{all.begin(), all.begin() + half}, {all.begin() + half, all.end()}};
}

TEST_F(OpenClHalfTest, AWeightThatIsWrittenWithinAPartIsReadAnew) {
  for (const bool by_view : {false, true}) {
    const WeightThatChanges changing(/*is_written=*/true, by_view),
        same(/*is_written=*/false, false);
    const int begin = KernelsEnqueued();
    const auto kept = Both(same.bench.Run(*halves_));
    EXPECT_EQ(KernelsEnqueued() - begin, 3) << "two products, and halves once";
    const auto got = Both(changing.bench.Run(*halves_));
    EXPECT_EQ(KernelsEnqueued() - begin, 3 + 4);
    const auto want = Both(changing.bench.Run(*singles_));
    ASSERT_EQ(got.size(), want.size());
    EXPECT_EQ(got[0], kept[0]);
    EXPECT_EQ(kept[1], kept[0]);
    // A sum of 70 products errs by about 0.001; another weight is another sum.
    for (size_t i = 0; i < want[1].size(); ++i) EXPECT_NEAR(got[1][i], want[1][i], 0.05) << i;
    EXPECT_NE(got[1], got[0]);
  }
}

TEST_F(OpenClHalfTest, AnExecutableTellsWhatItsHalvesTake) {
  const ProgramBench bench = WeightThatChanges(/*is_written=*/true, /*by_view=*/false).bench;
  const auto halves = halves_->Prepare(bench.program), singles = singles_->Prepare(bench.program);
  ASSERT_TRUE(halves.ok() && singles.ok()) << halves.status();
  const int64_t more = (*halves)->memory_bytes() - (*singles)->memory_bytes();
  EXPECT_GE(more, 35 * 70 * 2);
  EXPECT_LT(more, 35 * 70 * 2 + 64) << "of one weight, once";
}

// The losses of some steps of LeNet on the same samples.
std::vector<double> Losses(Backend& backend, const char* recipe) {
  constexpr int64_t kSamples = 16;
  const ModelSpec model = MakeModel("lenet").value();
  auto pipeline =
      TestPipeline::Make(model, {2}, kSamples, &backend, 5, Checks::kOff, Steps::kApart, recipe);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  Tensor x = Normal({kSamples * model.input.elements()}, 3, 1);
  std::vector<int32_t> labels(kSamples);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i % 10);
  std::vector<double> losses;
  for (uint64_t step = 0; step < 8; ++step) {
    StepContext context;
    context.step_labels = kSamples;
    context.learning_rate = 0.005F;
    context.momentum = 0.5F;
    const absl::Status trained = pipeline->ForwardBackward(x.data(), labels.data(), context);
    EXPECT_TRUE(trained.ok()) << trained;
    losses.push_back(pipeline->Loss() / kSamples);
    const absl::Status updated = pipeline->Update(context);
    EXPECT_TRUE(updated.ok()) << updated;
  }
  return losses;
}

TEST_F(OpenClHalfTest, LeNetLearnsAsInFp32AndTwiceTheSame) {
  const std::vector<double> halves = Losses(*halves_, "fp32"), singles = Losses(*singles_, "fp32");
  ASSERT_EQ(halves.size(), singles.size());
  EXPECT_LT(halves.back(), 0.7 * halves.front());
  EXPECT_NE(halves, singles);
  // Halves of older weights would be a whole step behind.
  for (size_t i = 0; i < halves.size(); ++i) EXPECT_NEAR(halves[i], singles[i], 0.02) << i;
  EXPECT_EQ(Losses(*halves_, "fp32"), halves);
}

TEST_F(OpenClHalfTest, IntegersHaveTheSameBytes) {
  Tensor x = ScaledTensor({6, 40}, DType::kInt8), weight = ScaledTensor({9, 40}, DType::kInt8);
  for (int i = 0; i < 240; ++i) x.data<int8_t>()[i] = static_cast<int8_t>(i * 37 % 255 - 127);
  for (int i = 0; i < 360; ++i) weight.data<int8_t>()[i] = static_cast<int8_t>(i * 91 % 255 - 127);
  OpSpec op;
  op.kind = OpKind::kLinear;
  op.out_channels = 9;
  const auto sums = [&](Backend& backend) {
    Tensor y = ScaledTensor({6, 9}, DType::kInt32);
    const absl::Status status =
        RunOp(OpCode::kInt8LinearForward, op, {&x, &weight}, {&y}, {}, 0, 0, &backend);
    EXPECT_TRUE(status.ok()) << status;
    return y.bytes;
  };
  EXPECT_EQ(sums(*halves_), sums(*singles_));
}

TEST_F(OpenClHalfTest, TheNumericsClassTells) {
  EXPECT_EQ(halves_->numerics_class(), singles_->numerics_class() + "/fp16-weights");
  EXPECT_EQ((*MakeBackendWith({.weights = "fp32"}))->numerics_class(), singles_->numerics_class());
}

}  // namespace
}  // namespace runnel::opencl::opencl_half_test
