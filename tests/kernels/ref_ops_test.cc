// The operators of backend ref against values worked out by hand or written down in the plainest
// possible way.

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/training/mixed_label.h"
#include "tests/kernels/op_harness.h"

namespace runnel::ref_ops_test {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

#define RUN_OK(...)                                  \
  do {                                               \
    const absl::Status status_ = RunOp(__VA_ARGS__); \
    ASSERT_TRUE(status_.ok()) << status_;            \
  } while (false)

OpSpec Spec(OpKind kind) {
  OpSpec spec;
  spec.kind = kind;
  return spec;
}

TEST(RefConv, HandComputed1dWithStridePaddingBias) {
  OpSpec spec = Spec(OpKind::kConv);
  spec.kernel = {3, 1};
  spec.stride = {2, 1};
  spec.padding = {1, 0};
  Tensor x = Floats({1, 1, 5}, {1, 2, 3, 4, 5});
  Tensor weight = Floats({1, 1, 3}, {1, 10, 100});
  Tensor bias = Floats({1}, {0.5});
  Tensor y = Zeros({1, 1, 3});
  RUN_OK(OpCode::kConvForward, spec, {&x, &weight, &bias}, {&y});
  EXPECT_THAT(y.values(), ElementsAre(210.5, 432.5, 54.5));
  Tensor dy = Floats({1, 1, 3}, {1, 2, 3});
  Tensor dx = Zeros({1, 1, 5});
  RUN_OK(OpCode::kConvInputGradient, spec, {&dy, &weight}, {&dx});
  EXPECT_THAT(dx.values(), ElementsAre(10, 100 + 2, 20, 200 + 3, 30));
  Tensor dweight = Zeros({1, 1, 3});
  Tensor dbias = Floats({1}, {7});
  RUN_OK(OpCode::kConvWeightGradient, spec, {&dy, &x}, {&dweight, &dbias});
  EXPECT_THAT(dweight.values(), ElementsAre(2 * 2 + 3 * 4, 1 + 6 + 15, 2 + 8));
  EXPECT_THAT(dbias.values(), ElementsAre(6));
  RUN_OK(OpCode::kConvWeightGradient, spec, {&dy, &x}, {&dweight, &dbias}, {.accumulate = true});
  EXPECT_THAT(dweight.values(), ElementsAre(32, 44, 20));
  EXPECT_THAT(dbias.values(), ElementsAre(12));
}

TEST(RefConv, HandComputed2dGroups) {
  OpSpec spec = Spec(OpKind::kConv);
  spec.kernel = {2, 2};
  spec.groups = 2;
  Tensor x = Floats({1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  Tensor weight = Floats({2, 1, 2, 2}, {1, 1, 1, 1, 1, 0, 0, -1});
  Tensor y = Zeros({1, 2, 1, 1});
  RUN_OK(OpCode::kConvForward, spec, {&x, &weight}, {&y});
  EXPECT_THAT(y.values(), ElementsAre(10, -3));
}

struct ConvCase {
  OpSpec spec = Spec(OpKind::kConv);
  Shape x, weight, y;
};

ConvCase RandomConv(uint64_t seed) {
  const CounterRandom random(seed, RandomPurpose::kTest, 8, 0);
  uint64_t next = 0;
  const auto below = [&](uint32_t bound) { return int64_t{random.Below(next++, bound)}; };
  for (;;) {
    ConvCase c;
    c.spec.inputs = {0};
    c.spec.groups = 1 + below(3);
    c.spec.out_channels = c.spec.groups * (1 + below(3));
    for (int axis = 0; axis < 2; ++axis) {
      c.spec.kernel[axis] = 1 + below(4);
      c.spec.stride[axis] = 1 + below(3);
      c.spec.padding[axis] = below(4);
    }
    const int64_t batch = 1 + below(3), channels = c.spec.groups * (1 + below(3));
    c.x = below(2) == 0 ? Shape{batch, channels, 1 + below(9)}
                        : Shape{batch, channels, 1 + below(7), 1 + below(7)};
    const auto info = InferLayer({"conv", {c.spec}}, c.x);
    if (!info.ok()) continue;
    c.y = info->output;
    c.weight = info->state[0].shape;
    return c;
  }
}

// The definition: calls term(y index, x index, weight index) for every product.
template <typename Term>
void ForEachProduct(const ConvCase& c, const Term& term) {
  const bool flat = c.x.rank() == 3;
  const auto dim = [&](const Shape& s, int axis) {
    return flat ? (axis == 0 ? int64_t{1} : s[2]) : s[2 + axis];
  };
  const auto of = [&](const std::array<int64_t, 2>& a, int axis, int64_t none) {
    return flat ? (axis == 0 ? none : a[0]) : a[axis];
  };
  const int64_t group_in = c.weight[1], group_out = c.y[1] / c.spec.groups;
  for (int64_t n = 0; n < c.x[0]; ++n)
    for (int64_t oc = 0; oc < c.y[1]; ++oc)
      for (int64_t oh = 0; oh < dim(c.y, 0); ++oh)
        for (int64_t ow = 0; ow < dim(c.y, 1); ++ow)
          for (int64_t g = 0; g < group_in; ++g)
            for (int64_t kh = 0; kh < of(c.spec.kernel, 0, 1); ++kh)
              for (int64_t kw = 0; kw < of(c.spec.kernel, 1, 1); ++kw) {
                const int64_t ih = oh * of(c.spec.stride, 0, 1) + kh - of(c.spec.padding, 0, 0);
                const int64_t iw = ow * of(c.spec.stride, 1, 1) + kw - of(c.spec.padding, 1, 0);
                if (ih < 0 || ih >= dim(c.x, 0) || iw < 0 || iw >= dim(c.x, 1)) continue;
                const int64_t ic = oc / group_out * group_in + g;
                term(
                    ((n * c.y[1] + oc) * dim(c.y, 0) + oh) * dim(c.y, 1) + ow,
                    ((n * c.x[1] + ic) * dim(c.x, 0) + ih) * dim(c.x, 1) + iw,
                    ((oc * group_in + g) * of(c.spec.kernel, 0, 1) + kh) * of(c.spec.kernel, 1, 1) +
                        kw);
              }
}

TEST(RefConv, IsItsDefinitionOnRandomShapes) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const ConvCase c = RandomConv(seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << c.x.ToString() << " * "
                                    << c.weight.ToString() << " -> " << c.y.ToString());
    Tensor x = Normal(c.x, seed, 0), weight = Normal(c.weight, seed, 1), dy = Normal(c.y, seed, 2);
    Tensor y = Zeros(c.y), dx = Zeros(c.x), dweight = Zeros(c.weight);
    RUN_OK(OpCode::kConvForward, c.spec, {&x, &weight}, {&y});
    RUN_OK(OpCode::kConvInputGradient, c.spec, {&dy, &weight}, {&dx});
    RUN_OK(OpCode::kConvWeightGradient, c.spec, {&dy, &x}, {&dweight});
    std::vector<double> y_sum(c.y.elements()), dx_sum(c.x.elements()), dw_sum(c.weight.elements());
    ForEachProduct(c, [&](int64_t o, int64_t i, int64_t w) {
      y_sum[o] += double{x.data()[i]} * weight.data()[w];
      dx_sum[i] += double{dy.data()[o]} * weight.data()[w];
      dw_sum[w] += double{dy.data()[o]} * x.data()[i];
    });
    EXPECT_THAT(y.values(), Pointwise(FloatNear(1e-5), y_sum));
    EXPECT_THAT(dx.values(), Pointwise(FloatNear(1e-5), dx_sum));
    EXPECT_THAT(dweight.values(), Pointwise(FloatNear(1e-5), dw_sum));
  }
}

TEST(RefLinear, HandComputed) {
  const OpSpec spec = Spec(OpKind::kLinear);
  Tensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  Tensor weight = Floats({2, 3}, {1, 0, -1, 2, 1, 0});
  Tensor bias = Floats({2}, {10, 20});
  Tensor y = Zeros({2, 2});
  RUN_OK(OpCode::kLinearForward, spec, {&x, &weight, &bias}, {&y});
  EXPECT_THAT(y.values(), ElementsAre(8, 24, 8, 33));
  RUN_OK(OpCode::kLinearForward, spec, {&x, &weight}, {&y});
  EXPECT_THAT(y.values(), ElementsAre(-2, 4, -2, 13));
  Tensor dy = Floats({2, 2}, {1, 2, 3, 4});
  Tensor dx = Zeros({2, 3}), dweight = Zeros({2, 3}), dbias = Zeros({2});
  RUN_OK(OpCode::kLinearInputGradient, spec, {&dy, &weight}, {&dx});
  EXPECT_THAT(dx.values(), ElementsAre(5, 2, -1, 11, 4, -3));
  RUN_OK(OpCode::kLinearWeightGradient, spec, {&dy, &x}, {&dweight, &dbias});
  EXPECT_THAT(dweight.values(), ElementsAre(13, 17, 21, 18, 24, 30));
  EXPECT_THAT(dbias.values(), ElementsAre(4, 6));
  RUN_OK(OpCode::kLinearWeightGradient, spec, {&dy, &x}, {&dweight, &dbias}, {.accumulate = true});
  EXPECT_THAT(dbias.values(), ElementsAre(8, 12));
}

TEST(RefBatchNorm, HandComputed) {
  OpSpec spec = Spec(OpKind::kBatchNorm);
  spec.epsilon = 1;
  spec.momentum = 0.25;
  // Channel 0: 0, 2, 4, 2 (mean 2, biased variance 2); channel 1: constant 5.
  Tensor x = Floats({2, 2, 2}, {0, 2, 5, 5, 4, 2, 5, 5});
  Tensor scale = Floats({2}, {3, 2}), shift = Floats({2}, {1, -1});
  Tensor y = Zeros({2, 2, 2}), stats = Zeros({4});
  Tensor mean = Floats({2}, {1, 1}), var = Floats({2}, {4, 4});
  RUN_OK(OpCode::kBatchNormForward, spec, {&x, &scale, &shift}, {&y, &stats, &mean, &var});
  const float r = static_cast<float>(1 / std::sqrt(3.0));
  EXPECT_THAT(stats.values(), ElementsAre(2, 5, r, 1));
  EXPECT_THAT(y.values(), Pointwise(FloatNear(1e-6), std::vector<float>{1 - 6 * r, 1, -1, -1,
                                                                        1 + 6 * r, 1, -1, -1}));
  EXPECT_THAT(mean.values(), ElementsAre(1.25, 2));
  EXPECT_THAT(var.values(), ElementsAre(FloatNear(3 + 0.25 * 8 / 3, 1e-6), 3));
  Tensor evaluated = Zeros({2, 2, 2});
  mean = Floats({2}, {2, 0});
  var = Floats({2}, {3, 0});
  RUN_OK(OpCode::kBatchNormEval, spec, {&x, &scale, &shift, &mean, &var}, {&evaluated});
  EXPECT_THAT(evaluated.values(), ElementsAre(-2, 1, 9, 9, 4, 1, 9, 9));
}

TEST(RefBatchNorm, OneElementAChannelKeepsItsVarianceFinite) {
  Tensor x = Floats({1, 1}, {3}), scale = Floats({1}, {1}), shift = Floats({1}, {2});
  Tensor y = Zeros({1, 1}), stats = Zeros({2}), mean = Zeros({1}), var = Floats({1}, {1});
  RUN_OK(OpCode::kBatchNormForward, Spec(OpKind::kBatchNorm), {&x, &scale, &shift},
         {&y, &stats, &mean, &var});
  EXPECT_THAT(y.values(), ElementsAre(2));
  EXPECT_THAT(var.values(), ElementsAre(FloatNear(0.9f, 1e-6)));
}

TEST(RefBatchNorm, WeightGradientWritesOrAdds) {
  Tensor sums = Floats({4}, {1, 2, 3, 4}), dscale = Floats({2}, {9, 9}), dshift = Zeros({2});
  const OpSpec spec = Spec(OpKind::kBatchNorm);
  RUN_OK(OpCode::kBatchNormWeightGradient, spec, {&sums}, {&dscale, &dshift});
  EXPECT_THAT(dscale.values(), ElementsAre(1, 2));
  RUN_OK(OpCode::kBatchNormWeightGradient, spec, {&sums}, {&dscale, &dshift}, {.accumulate = true});
  EXPECT_THAT(dscale.values(), ElementsAre(2, 4));
  EXPECT_THAT(dshift.values(), ElementsAre(6, 8));
}

TEST(RefElementwise, ReluAndRelu6) {
  Tensor x = Floats({6}, {-1, 0, 0.5, 6, 7, kNan});
  Tensor y = Zeros({6}), dy = Floats({6}, {1, 2, 3, 4, 5, 6}), dx = Zeros({6});
  RUN_OK(OpCode::kReluForward, Spec(OpKind::kRelu), {&x}, {&y});
  EXPECT_THAT(y.values(), ElementsAre(0, 0, 0.5, 6, 7, testing::IsNan()));
  RUN_OK(OpCode::kReluInputGradient, Spec(OpKind::kRelu), {&dy, &y}, {&dx});
  EXPECT_THAT(dx.values(), ElementsAre(0, 0, 3, 4, 5, 6));
  RUN_OK(OpCode::kRelu6Forward, Spec(OpKind::kRelu6), {&x}, {&y});
  EXPECT_THAT(y.values(), ElementsAre(0, 0, 0.5, 6, 6, testing::IsNan()));
  RUN_OK(OpCode::kRelu6InputGradient, Spec(OpKind::kRelu6), {&dy, &y}, {&dx});
  EXPECT_THAT(dx.values(), ElementsAre(0, 0, 3, 0, 0, 6));
}

TEST(RefElementwise, AddAccumulateCopy) {
  Tensor a = Floats({3}, {1, 2, 3}), b = Floats({3}, {10, 20, 30}), y = Zeros({3});
  RUN_OK(OpCode::kAddForward, Spec(OpKind::kAdd), {&a, &b}, {&y});
  EXPECT_THAT(y.values(), ElementsAre(11, 22, 33));
  RUN_OK(OpCode::kAccumulate, Spec(OpKind::kAdd), {&a, &a}, {&y});
  EXPECT_THAT(y.values(), ElementsAre(2, 4, 6));
  Tensor indices = TensorOf<int64_t>({1, 2}, DType::kInt64, {5, -6});
  Tensor copied = Zeros({2, 1}, DType::kInt64);
  RUN_OK(OpCode::kCopy, Spec(OpKind::kFlatten), {&indices}, {&copied});
  EXPECT_THAT(copied.values<int64_t>(), ElementsAre(5, -6));
}

TEST(RefDropout, MaskIsAPureFunctionOfTheKey) {
  OpSpec spec = Spec(OpKind::kDropout);
  spec.rate = 0.3;
  constexpr int64_t kCount = 20000;
  Tensor ones = Floats({kCount}, std::vector<float>(kCount, 1));
  const auto run = [&](OpCode code, uint64_t seed, int64_t sequence, int layer, int op) {
    Tensor y = Zeros({kCount});
    const StepContext context = {.run_seed = seed, .sequence = Sequence(sequence)};
    EXPECT_TRUE(RunOp(code, spec, {&ones}, {&y}, context, layer, op).ok());
    return y.values();
  };
  const std::vector<float> base = run(OpCode::kDropoutForward, 1, 2, 3, 4);
  const CounterRandom random(1, RandomPurpose::kDropout, 3 * 256 + 4, 2);
  int64_t kept = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const bool keeps = random.Uniform(i) >= 0.3;
    kept += keeps;
    ASSERT_EQ(base[i], keeps ? static_cast<float>(1 / 0.7) : 0.0f);
  }
  EXPECT_NEAR(kept, 0.7 * kCount, 5 * std::sqrt(0.21 * kCount));
  EXPECT_EQ(run(OpCode::kDropoutInputGradient, 1, 2, 3, 4), base);
  EXPECT_NE(run(OpCode::kDropoutForward, 2, 2, 3, 4), base);
  EXPECT_NE(run(OpCode::kDropoutForward, 1, 3, 3, 4), base);
  EXPECT_NE(run(OpCode::kDropoutForward, 1, 2, 4, 4), base);
  EXPECT_NE(run(OpCode::kDropoutForward, 1, 2, 3, 5), base);
}

TEST(RefPool, MaxTakesTheFirstMaximumAndNan) {
  OpSpec spec = Spec(OpKind::kMaxPool);
  spec.kernel = {2, 2};
  spec.stride = {2, 2};
  Tensor x = Floats({1, 2, 2, 4}, {1, 3, 5, 5,  //
                                   3, 2, 5, 5,  //
                                   -1, -2, 9, kNan, -4, -3, 0, 1});
  Tensor y = Zeros({1, 2, 1, 2}), indices = Zeros({1, 2, 1, 2}, DType::kUInt8);
  RUN_OK(OpCode::kMaxPoolForward, spec, {&x}, {&y, &indices});
  EXPECT_THAT(y.values(), ElementsAre(3, 5, -1, testing::IsNan()));
  EXPECT_THAT(indices.values<uint8_t>(), ElementsAre(1, 0, 0, 1));
  Tensor without = Zeros({1, 2, 1, 2});
  RUN_OK(OpCode::kMaxPoolForward, spec, {&x}, {&without});
  EXPECT_EQ(without.values()[2], -1);
  Tensor dy = Floats({1, 2, 1, 2}, {1, 2, 3, 4}), dx = Zeros({1, 2, 2, 4});
  RUN_OK(OpCode::kMaxPoolInputGradient, spec, {&dy, &indices}, {&dx});
  EXPECT_THAT(dx.values(), ElementsAre(0, 1, 2, 0, 0, 0, 0, 0, 3, 0, 0, 4, 0, 0, 0, 0));
}

TEST(RefPool, OverlappingWindows1d) {
  OpSpec spec = Spec(OpKind::kMaxPool);
  spec.kernel = {3, 1};
  spec.stride = {1, 1};
  Tensor x = Floats({1, 1, 5}, {1, 2, 9, 3, 4});
  Tensor y = Zeros({1, 1, 3}), indices = Zeros({1, 1, 3}, DType::kUInt8);
  RUN_OK(OpCode::kMaxPoolForward, spec, {&x}, {&y, &indices});
  EXPECT_THAT(y.values(), ElementsAre(9, 9, 9));
  Tensor dy = Floats({1, 1, 3}, {1, 10, 100}), dx = Zeros({1, 1, 5});
  RUN_OK(OpCode::kMaxPoolInputGradient, spec, {&dy, &indices}, {&dx});
  EXPECT_THAT(dx.values(), ElementsAre(0, 0, 111, 0, 0));
  spec.kind = OpKind::kAvgPool;
  spec.padding = {1, 0};  // a mean of what is there
  RUN_OK(OpCode::kAvgPoolForward, spec, {&x}, {&y});
  EXPECT_THAT(y.values(), ElementsAre(1.5, 4, FloatNear(14.0f / 3, 1e-6)));
  spec.padding = {0, 0};
  RUN_OK(OpCode::kAvgPoolForward, spec, {&x}, {&y});
  EXPECT_THAT(y.values(), ElementsAre(4, FloatNear(14.0f / 3, 1e-6), FloatNear(16.0f / 3, 1e-6)));
  dy = Floats({1, 1, 3}, {3, 6, 9});
  RUN_OK(OpCode::kAvgPoolInputGradient, spec, {&dy}, {&dx});
  EXPECT_THAT(dx.values(), ElementsAre(1, 3, 6, 5, 3));
}

// Zeros in the padding would win against these values.
TEST(RefPool, PaddingNeverWins) {
  OpSpec spec = Spec(OpKind::kMaxPool);
  spec.kernel = {3, 3};
  spec.stride = {2, 2};
  spec.padding = {1, 2};
  Tensor x = Floats({1, 1, 3, 3}, {-9, -8, -7, -6, -5, -4, -3, -2, -2});
  Tensor y = Zeros({1, 1, 2, 3}), indices = Zeros({1, 1, 2, 3}, DType::kUInt8);
  RUN_OK(OpCode::kMaxPoolForward, spec, {&x}, {&y, &indices});
  EXPECT_THAT(y.values(), ElementsAre(-6, -4, -4, -3, -2, -2));
  EXPECT_THAT(indices.values<uint8_t>(), ElementsAre(8, 8, 6, 5, 4, 3));
  Tensor dy = Floats({1, 1, 2, 3}, {1, 10, 100, 1000, 10000, 100000}), dx = Zeros({1, 1, 3, 3});
  RUN_OK(OpCode::kMaxPoolInputGradient, spec, {&dy, &indices}, {&dx});
  EXPECT_THAT(dx.values(), ElementsAre(0, 0, 0, 1, 0, 110, 1000, 10000, 100000));
}

TEST(RefPool, Average2dAndGlobal) {
  OpSpec spec = Spec(OpKind::kAvgPool);
  spec.kernel = {1, 2};
  spec.stride = {1, 2};
  Tensor x = Floats({1, 1, 2, 4}, {1, 3, 5, 7, 2, 4, 6, 8}), y = Zeros({1, 1, 2, 2});
  RUN_OK(OpCode::kAvgPoolForward, spec, {&x}, {&y});
  EXPECT_THAT(y.values(), ElementsAre(2, 6, 3, 7));
  Tensor mean = Zeros({1, 1}), dx = Zeros({1, 1, 2, 4}), dy = Floats({1, 1}, {4});
  RUN_OK(OpCode::kGlobalAvgPoolForward, Spec(OpKind::kGlobalAvgPool), {&x}, {&mean});
  EXPECT_THAT(mean.values(), ElementsAre(4.5));
  RUN_OK(OpCode::kGlobalAvgPoolInputGradient, Spec(OpKind::kGlobalAvgPool), {&dy}, {&dx});
  EXPECT_THAT(dx.values(), testing::Each(0.5));
}

TEST(RefLoss, HandComputed) {
  Tensor logits = Floats({2, 2}, {0, std::log(3.0f), 1000, 0});
  Tensor labels = TensorOf<int32_t>({2}, DType::kInt32, {0, 0});
  Tensor gradient = Zeros({2, 2}), metrics = Zeros({16}, DType::kUInt8);
  const OpSpec spec;
  RUN_OK(OpCode::kSoftmaxCrossEntropy, spec, {&logits, &labels}, {&gradient, &metrics},
         {.step_labels = 4});
  EXPECT_THAT(gradient.values(), Pointwise(FloatNear(1e-7), {-0.1875f, 0.1875f, 0.0f, 0.0f}));
  EXPECT_NEAR(metrics.data<double>()[0], std::log(4.0), 1e-7);
  EXPECT_EQ(metrics.data<double>()[1], 1);
  RUN_OK(OpCode::kSoftmaxCrossEntropyEval, spec, {&logits, &labels}, {&metrics});
  EXPECT_NEAR(metrics.data<double>()[0], std::log(4.0), 1e-7);  // overwritten, not added
  // Half of each label is spread over both classes: targets 0.75 and 0.25. Evaluations see whole ones.
  const StepContext smoothed = {.step_labels = 4, .label_smoothing = 0.5};
  RUN_OK(OpCode::kSoftmaxCrossEntropy, spec, {&logits, &labels}, {&gradient, &metrics}, smoothed);
  EXPECT_THAT(gradient.values(), Pointwise(FloatNear(1e-7), {-0.125f, 0.125f, 0.0625f, -0.0625f}));
  EXPECT_NEAR(metrics.data<double>()[0],
              -0.75 * std::log(0.25) - 0.25 * std::log(0.75) + 0.25 * 1000, 1e-6);
  RUN_OK(OpCode::kSoftmaxCrossEntropyEval, spec, {&logits, &labels}, {&metrics}, smoothed);
  EXPECT_NEAR(metrics.data<double>()[0], std::log(4.0), 1e-7);
  // A quarter of class 0, the rest of class 1; the first sample's probabilities are those.
  labels.data<int32_t>()[0] = PackLabel({0, 1, kMixParts / 4});
  RUN_OK(OpCode::kSoftmaxCrossEntropy, spec, {&logits, &labels}, {&gradient, &metrics},
         {.step_labels = 4});
  EXPECT_THAT(gradient.values(), Pointwise(FloatNear(1e-7), {0.0f, 0.0f, 0.0f, 0.0f}));
  EXPECT_NEAR(metrics.data<double>()[0], -0.25 * std::log(0.25) - 0.75 * std::log(0.75), 1e-6);
  EXPECT_EQ(metrics.data<double>()[1], 2) << "the larger share counts as the label";
  for (int32_t bad : {-1, 2, PackLabel({0, 2, 9}), PackLabel({2, 0, 9})}) {
    labels.data<int32_t>()[1] = bad;
    const absl::Status status =
        RunOp(OpCode::kSoftmaxCrossEntropy, spec, {&logits, &labels}, {&gradient, &metrics});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("label"));
  }
}

TEST(RefUpdate, SgdWithMomentumAndDecay) {
  Tensor w = Floats({2}, {1, -2}), g = Floats({2}, {0.5, 0.25}), v = Floats({2}, {1, 0});
  Tensor updated = Zeros({2});
  RUN_OK(OpCode::kOptimizerUpdate, {}, {&w, &g, &v}, {&updated},
         {.learning_rate = 0.5, .momentum = 0.5, .weight_decay = 0.25});
  // g + wd w = 0.75, -0.25; v = 0.5 v + g = 1.25, -0.25.
  EXPECT_THAT(v.values(), ElementsAre(1.25, -0.25));
  EXPECT_THAT(updated.values(), ElementsAre(0.375, -1.875));
  EXPECT_THAT(w.values(), ElementsAre(1, -2));
}

TEST(RefBackend, SaysWhatIsNotBound) {
  Program program;
  program.buffers = {{Storage::kInput, DType::kFloat32, {2}, 0},
                     {Storage::kOutput, DType::kFloat32, {2}, 0}};
  program.parts[0].push_back({OpCode::kReluForward, {0}, {1}});
  auto executable = (*MakeRefBackend(1))->Prepare(program);
  ASSERT_TRUE(executable.ok());
  const absl::Status status = (*executable)->Run(Part::kForward, {}, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("input"));
  program.parts[2].push_back({static_cast<OpCode>(200)});
  EXPECT_EQ((*MakeRefBackend(1))->Prepare(program).status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace runnel::ref_ops_test

#undef RUN_OK
