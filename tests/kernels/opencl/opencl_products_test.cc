// How the OpenCL backend plans products: divisors as multipliers, slices, which operand is an image,
// and convolutions with one input channel a group, bit for bit as ref's. Skipped where there is no
// device, as far as one is needed.

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/opencl/device/device.h"
#include "kernels/backends/opencl/opencl_backend.h"
#include "kernels/backends/opencl/product/product_plan.h"
#include "kernels/backends/ref/ref_backend.h"
#include "proto/base/random.h"
#include "tests/kernels/op_harness.h"
#include "tests/kernels/opencl/opencl_faults.h"

namespace runnel::opencl::opencl_products_test {
namespace {

using ::testing::HasSubstr;

// quotient() of kernels/backends/opencl/cl/product.cl.
int64_t Quotient(int64_t x, const KernelDivisor& by) {
  const uint64_t twice = static_cast<uint32_t>(x << 1);
  return static_cast<int64_t>((twice * by.multiplier >> 32) >> by.shift);
}

TEST(DivisorTest, ItsMultiplierGivesEachQuotient) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto check = [](int64_t x, const KernelDivisor& by) {
    ASSERT_EQ(Quotient(x, by), x / by.by) << x << " / " << by.by;
  };
  std::vector<int64_t> divisors = {1, 2, 3, 5, 7, 9, 25, 49, 64, 641, 1 << 30, kMost - 1, kMost};
  const CounterRandom random(35, RandomPurpose::kTest, 0, 0);
  for (uint64_t i = 0; i < 500; ++i)
    divisors.push_back(1 + static_cast<int64_t>(random.Bits(i) >> (1 + i % 30)));
  for (const int64_t by : divisors) {
    const KernelDivisor divisor = DivisorOf(by);
    for (int64_t multiple : {int64_t{0}, by, 2 * by, kMost / by * by, kMost}) {
      for (int64_t x : {multiple - 1, multiple, multiple + 1}) {
        if (x >= 0 && x <= kMost) check(x, divisor);
      }
    }
    for (uint64_t i = 0; i < 200; ++i)
      check(static_cast<int64_t>(random.Bits(1000 + i) >> (1 + i % 31)), divisor);
  }
}

DeviceInfo Gpu() {
  DeviceInfo device;
  device.type = CL_DEVICE_TYPE_GPU;
  return device;
}

TEST(ProductPlanTest, AWeightIsAnImageWhereTheDeviceReachesIt) {
  Program program;
  program.buffers = {{Storage::kScratch, DType::kInt8, {2, 64, 4, 4}, 0, true},
                     {Storage::kParameters, DType::kInt8, {32, 64, 3, 3}, 64, true},
                     {Storage::kScratch, DType::kInt32, {2, 32, 2, 2}, 4096, true}};
  Instruction forward = {OpCode::kInt8ConvForward, {0, 1}, {2}};
  forward.attributes.kind = OpKind::kConv;
  forward.attributes.kernel = {3, 3};
  DeviceInfo device = Gpu();
  const ChosenTiles image = {{kEveryClass, {4, 4, 8, 8, 8, 4, true}}};
  const auto is_image = [&](const Instruction& instruction) {
    return PlanProduct(program, instruction, device, image).tile.image;
  };
  device.image_texels = 1 << 16;
  EXPECT_TRUE(is_image(forward));
  device.image_texels = 1 << 10;
  EXPECT_FALSE(is_image(forward)) << "18 KiB of weights";
  device.image_texels = 1 << 16;
  Instruction gradient = forward;
  gradient.code = OpCode::kInt8ConvWeightGradient;
  gradient.inputs = {2, 0};
  gradient.outputs = {1};
  EXPECT_FALSE(is_image(gradient)) << "it reads no weight";
}

TEST(ProductPlanTest, SlicesGiveEachUnitWorkAndStayIn32Bits) {
  Program program;
  const auto buffer = [&](Shape shape, DType dtype) {
    program.buffers.push_back({Storage::kScratch, dtype, shape, 0, true});
  };
  buffer({200, 6, 30, 30}, DType::kInt8);
  buffer({200, 3, 32, 32}, DType::kInt8);
  buffer({6, 3, 3, 3}, DType::kInt32);
  Instruction instruction = {OpCode::kInt8ConvWeightGradient, {0, 1}, {2}};
  instruction.attributes.kind = OpKind::kConv;
  instruction.attributes.kernel = {3, 3};
  DeviceInfo device = Gpu();
  device.compute_units = 1;
  const ProductPlan one = PlanProduct(program, instruction, device, {});
  EXPECT_EQ(one.plan.rows, 6);
  EXPECT_EQ(one.plan.columns, 27);
  EXPECT_EQ(one.plan.depth, 200 * 900);
  EXPECT_EQ(one.tile.group_rows(), 8);
  EXPECT_EQ(one.plan.slices, 2);
  device.compute_units = 100;
  const ProductPlan many = PlanProduct(program, instruction, device, {});
  EXPECT_GE(many.plan.slices, 95);
  for (const KernelPlan& plan : {one.plan, many.plan}) {
    EXPECT_EQ(plan.slice_depth % 32, 0);
    EXPECT_LE(plan.slice_depth, kMaxInt32Products);
    EXPECT_GE(int64_t{plan.slices} * plan.slice_depth, plan.depth);
    EXPECT_LT(int64_t{plan.slices - 1} * plan.slice_depth, plan.depth);
  }
}

// A convolution with one input channel a group, and more than one output channel in some.
struct Depthwise {
  OpSpec op;
  Shape x, weight, y;
};

Depthwise Sized(OpSpec op, const Shape& x) {
  op.kind = OpKind::kConv;
  op.groups = x[1];
  const auto positions = [&](int axis) {
    const auto a = static_cast<size_t>(axis);
    return (x[axis + 2] + op.padding[a] + op.end_padding(axis) - op.kernel[a]) / op.stride[a] + 1;
  };
  return {op,
          x,
          {op.out_channels, 1, op.kernel[0], op.kernel[1]},
          {x[0], op.out_channels, positions(0), positions(1)}};
}

// Windows as ncnn's and the Arm Compute Library's tests have them, among them paddings that differ
// by side.
std::vector<Depthwise> NamedOnes() {
  std::vector<Depthwise> all;
  const auto add = [&](Shape x, int64_t multiplier, std::array<int64_t, 2> kernel,
                       std::array<int64_t, 2> stride, std::array<int64_t, 2> front,
                       std::array<int64_t, 2> behind) {
    OpSpec op = {.out_channels = x[1] * multiplier, .kernel = kernel, .stride = stride};
    op.padding = front;
    op.padding_end = behind;
    all.push_back(Sized(op, x));
  };
  add({1, 8, 14, 14}, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1});
  add({2, 8, 15, 13}, 1, {3, 3}, {2, 2}, {0, 0}, {1, 1});
  add({1, 3, 27, 23}, 1, {3, 3}, {1, 2}, {0, 1}, {2, 0});
  add({1, 5, 27, 33}, 2, {5, 5}, {3, 2}, {3, 0}, {1, 2});
  add({1, 3, 33, 27}, 7, {7, 3}, {3, 2}, {1, 2}, {0, 0});
  add({3, 9, 7, 7}, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1});
  add({1, 2, 1, 1}, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1});
  add({1, 4, 9, 65}, 1, {1, 5}, {1, 1}, {0, 2}, {0, 2});
  add({2, 16, 8, 8}, 3, {1, 1}, {1, 1}, {0, 0}, {0, 0});
  return all;
}

Depthwise DrawnOne(uint64_t seed) {
  const CounterRandom random(seed, RandomPurpose::kTest, 1, 0);
  uint64_t next = 0;
  const auto pick = [&](int64_t least, int64_t most) {
    return least + random.Below(next++, static_cast<uint32_t>(most - least + 1));
  };
  const int64_t channels = pick(2, 20);
  OpSpec op = {.out_channels = channels * pick(1, 3), .kernel = {pick(1, 5), pick(1, 5)}};
  op.stride = {pick(1, 3), pick(1, 3)};
  for (size_t axis = 0; axis < 2; ++axis) {
    op.padding[axis] = pick(0, op.kernel[axis] - 1);
    op.padding_end[axis] = pick(0, op.kernel[axis] - 1);
  }
  return Sized(op, {pick(1, 3), channels, op.kernel[0] + pick(0, 20), op.kernel[1] + pick(0, 20)});
}

// An instruction of a product, its operands and the type of its sums.
struct Operation {
  OpCode code;
  Shape left, right, out;
  DType dtype = DType::kInt32;
};

void ExpectAsRef(const OpSpec& op, const Operation& operation, uint64_t seed, Backend* backend) {
  const CounterRandom random(seed, RandomPurpose::kTest, 2, 0);
  Tensor left = ScaledTensor(operation.left, DType::kInt8);
  Tensor right = ScaledTensor(operation.right, DType::kInt8);
  uint64_t next = 0;
  for (Tensor* tensor : {&left, &right}) {
    for (int64_t i = 0; i < tensor->shape.elements(); ++i)
      tensor->data<int8_t>()[i] = static_cast<int8_t>(int(random.Below(next++, 255)) - 127);
  }
  Tensor want = ScaledTensor(operation.out, operation.dtype), got = want;
  ASSERT_TRUE(RunOp(operation.code, op, {&left, &right}, {&want}, {}).ok());
  const absl::Status status = RunOp(operation.code, op, {&left, &right}, {&got}, {}, 0, 0, backend);
  ASSERT_TRUE(status.ok()) << status;
  const int64_t count = operation.out.elements();
  for (int64_t i = 0; i < count; ++i) {
    const bool is_wide = operation.dtype == DType::kInt64;
    const int64_t value = is_wide ? got.data<int64_t>()[i] : got.data<int32_t>()[i];
    const int64_t wanted = is_wide ? want.data<int64_t>()[i] : want.data<int32_t>()[i];
    ASSERT_EQ(value, wanted) << Name(operation.code) << ", element " << i;
  }
  EXPECT_EQ(TailOf(got.bytes.data(), operation.dtype, operation.out).max_abs,
            TailOf(want.bytes.data(), operation.dtype, operation.out).max_abs);
}

// Calls check(conv, seed, backend) for windows with a name and drawn ones.
template <typename Check>
void ForDepthwiseOnes(const Check& check) {
  auto backend = MakeBackendWith({});
  if (!backend.ok()) GTEST_SKIP() << "no OpenCL here: " << backend.status().message();
  const auto traced = [&](const Depthwise& conv, uint64_t seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", x " << conv.x.ToString() << ", weight "
                                    << conv.weight.ToString() << ", y " << conv.y.ToString());
    check(conv, seed, backend->get());
  };
  uint64_t seed = 0;
  for (const Depthwise& conv : NamedOnes()) traced(conv, ++seed);
  for (seed = 100; seed < 160 && !testing::Test::HasFailure(); ++seed) traced(DrawnOne(seed), seed);
}

TEST(DepthwiseTest, GivesTheSumsOfRef) {
  ForDepthwiseOnes([](const Depthwise& conv, uint64_t seed, Backend* backend) {
    const Operation forward = {OpCode::kInt8ConvForward, conv.x, conv.weight, conv.y};
    ExpectAsRef(conv.op, forward, seed, backend);
  });
}

TEST(DepthwiseTest, GivesTheGradientsOfRef) {
  ForDepthwiseOnes([](const Depthwise& conv, uint64_t seed, Backend* backend) {
    const Operation of_input = {OpCode::kInt8ConvInputGradient, conv.y, conv.weight, conv.x};
    Operation of_weight = {OpCode::kInt8ConvWeightGradient, conv.y, conv.x, conv.weight};
    ExpectAsRef(conv.op, of_input, seed, backend);
    ExpectAsRef(conv.op, of_weight, seed, backend);
    of_weight.dtype = DType::kInt64;
    ExpectAsRef(conv.op, of_weight, seed, backend);
  });
}

// Many samples: sums of several slices.
TEST(DepthwiseTest, AWeightGradientOfManySamplesIsThatOfRef) {
  auto backend = MakeBackendWith({});
  if (!backend.ok()) GTEST_SKIP() << "no OpenCL here: " << backend.status().message();
  OpSpec op = {.out_channels = 2, .kernel = {3, 3}};
  op.padding = {1, 1};
  const Depthwise conv = Sized(op, {200, 2, 32, 32});
  ASSERT_GT(conv.y.elements() / 2, kMaxInt32Products);
  for (const DType dtype : {DType::kInt32, DType::kInt64})
    ExpectAsRef(conv.op, {OpCode::kInt8ConvWeightGradient, conv.y, conv.x, conv.weight, dtype}, 7,
                backend->get());
}

TEST(DepthwiseTest, GivesTheGradientsOfRefInFp32) {
  ForDepthwiseOnes([](const Depthwise& conv, uint64_t seed, Backend* backend) {
    Tensor x = Normal(conv.x, seed, 1), weight = Normal(conv.weight, seed, 2);
    Tensor dy = Normal(conv.y, seed, 3);
    const auto expect = [&](OpCode code, Tensor& left, Tensor& right, const Shape& shape) {
      Tensor want = Normal(shape, seed, 4), got = want;  // added to, after the first micro-batch
      const StepContext context = {.accumulate = code == OpCode::kConvWeightGradient};
      ASSERT_TRUE(RunOp(code, conv.op, {&left, &right}, {&want}, context).ok());
      const absl::Status status =
          RunOp(code, conv.op, {&left, &right}, {&got}, context, 0, 0, backend);
      ASSERT_TRUE(status.ok()) << status;
      for (int64_t i = 0; i < shape.elements(); ++i)
        ASSERT_NEAR(got.data()[i], want.data()[i], 2e-4) << Name(code) << ", element " << i;
    };
    expect(OpCode::kConvInputGradient, dy, weight, conv.x);
    expect(OpCode::kConvWeightGradient, dy, x, conv.weight);
  });
}

// Registers leave each kernel its own groups.
TEST(ProductsTest, ATileIsTooLargeForTheKernelsThatSayItAlone) {
  if (!MakeBackendWith({}).ok()) GTEST_SKIP() << "no OpenCL here";
  LimitGroups(63, "product_weight_gradient");
  SpoilBuilds("-DTILE_ROWS=8", CL_OUT_OF_RESOURCES);  // who runs a kernel of the tile is told so
  auto backend = MakeBackendWith({.tile = "8x4 by 8x8, depth 8, vector 4"});
  Tensor x = ScaledTensor({2, 12}, DType::kInt8), weight = ScaledTensor({3, 12}, DType::kInt8);
  Tensor y = ScaledTensor({2, 3}, DType::kInt32), dy = ScaledTensor({2, 3}, DType::kInt8);
  Tensor dweight = ScaledTensor({3, 12}, DType::kInt32);
  const OpSpec op = {.kind = OpKind::kLinear, .out_channels = 3};
  const auto gradient = [&] {
    return RunOp(OpCode::kInt8LinearWeightGradient, op, {&dy, &x}, {&dweight}, {}, 0, 0,
                 backend->get());
  };
  EXPECT_TRUE(gradient().ok()) << "by a smaller tile";
  EXPECT_THAT((*backend)->description(), HasSubstr("it runs product_weight_gradient in groups"));
  EXPECT_FALSE(
      RunOp(OpCode::kInt8LinearForward, op, {&x, &weight}, {&y}, {}, 0, 0, backend->get()).ok())
      << "the tile's own";
  SpoilBuilds("", 0);
  LimitGroups(0);
}

TEST(ProductPlanTest, DepthwiseProductsHaveKernelsOfTheirOwn) {
  Program program;
  program.buffers = {{Storage::kScratch, DType::kInt8, {2, 6, 8, 8}, 0, true},
                     {Storage::kParameters, DType::kInt8, {12, 1, 3, 3}, 64, true},
                     {Storage::kScratch, DType::kInt32, {2, 12, 6, 6}, 4096, true}};
  Instruction forward = {OpCode::kInt8ConvForward, {0, 1}, {2}};
  forward.attributes.kind = OpKind::kConv;
  forward.attributes.kernel = {3, 3};
  forward.attributes.groups = 6;
  const ProductPlan plan = PlanProduct(program, forward, Gpu(), {});
  EXPECT_TRUE(plan.is_depthwise);
  EXPECT_EQ(plan.plan.is_point, 0);
  Instruction gradient = forward;
  gradient.code = OpCode::kInt8ConvInputGradient;
  gradient.inputs = {2, 1};
  gradient.outputs = {0};
  EXPECT_TRUE(PlanProduct(program, gradient, Gpu(), {}).is_depthwise);
  gradient.code = OpCode::kInt8ConvWeightGradient;
  gradient.inputs = {2, 0};
  gradient.outputs = {1};
  EXPECT_STREQ(PlanProduct(program, gradient, Gpu(), {}).kernel, "depthwise_weight_gradient");
  program.buffers[1].shape = {12, 2, 3, 3};
  forward.attributes.groups = 3;
  EXPECT_FALSE(PlanProduct(program, forward, Gpu(), {}).is_depthwise);
}

}  // namespace
}  // namespace runnel::opencl::opencl_products_test
