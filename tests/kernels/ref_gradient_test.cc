// Every differentiable operator of backend ref: the compiled derivative against central differences
// of sum(c * y), with c random. The forward rounds y to float, so steps are wide where the operator
// is (piecewise) linear.

#include <cmath>
#include <iostream>

#include "gtest/gtest.h"
#include "tests/kernels/op_harness.h"

namespace runnel::ref_gradient_test {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed, RandomPurpose::kTest, 9, 0) {}
  int64_t operator()(uint32_t bound) { return random_.Below(next_++, bound); }

 private:
  CounterRandom random_;
  uint64_t next_ = 0;
};

constexpr uint64_t kSeeds = 40;

struct Case {
  OpSpec spec;
  Shape x, y;
  std::vector<StateTensorSpec> state;
};

// An operator with random attributes on a random shape that it accepts.
Case RandomCase(OpKind kind, uint64_t seed) {
  Draw draw(seed * 64 + static_cast<uint64_t>(kind));
  for (;;) {
    Case c;
    c.spec.kind = kind;
    c.spec.inputs = kind == OpKind::kAdd ? std::vector<int32_t>{0, 0} : std::vector<int32_t>{0};
    c.spec.groups = 1 + draw(3);
    c.spec.out_channels = c.spec.groups * (1 + draw(3));
    for (int axis = 0; axis < 2; ++axis) {
      c.spec.kernel[axis] = 1 + draw(3);
      c.spec.stride[axis] = 1 + draw(3);
      c.spec.padding[axis] = draw(3);
    }
    c.spec.bias = draw(2) == 0;
    c.spec.rate = 0.2 * static_cast<double>(draw(4));
    const int64_t batch = 2 + draw(3), channels = c.spec.groups * (1 + draw(2));
    const int64_t rank = 2 + draw(3);
    if (rank == 2) c.x = {batch, channels};
    if (rank == 3) c.x = {batch, channels, 2 + draw(7)};
    if (rank == 4) c.x = {batch, channels, 2 + draw(4), 2 + draw(4)};
    const auto info = InferLayer({"one", {c.spec}}, c.x);
    if (!info.ok()) continue;
    c.y = info->output;
    c.state = info->state;
    // The compiler gives a product rows.
    for (Shape* shape : {&c.x, &c.y}) {
      if (kind == OpKind::kLinear && shape->rank() == 3)
        *shape = {(*shape)[0] * (*shape)[1], (*shape)[2]};
    }
    return c;
  }
}

// All different and at least `spacing` apart and from 0 and 6: no kink within half of it.
Tensor Spaced(const Shape& shape, uint64_t seed, float spacing) {
  const CounterRandom random(seed, RandomPurpose::kTest, 10, 0);
  std::vector<float> values(shape.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = (static_cast<float>(i) - static_cast<float>(values.size() / 3) + 0.5f) * spacing;
    std::swap(values[i], values[random.Below(i, static_cast<uint32_t>(i) + 1)]);
  }
  return Floats(shape, values);
}

// sum(c * y).
double Weighted(Tensor& y, Tensor& c) {
  double sum = 0;
  for (int64_t i = 0; i < y.shape.elements(); ++i) sum += double{y.data()[i]} * c.data()[i];
  return sum;
}

// Compares d loss / d variable with `gradient`, element by element.
template <typename Loss>
void CheckGradient(Tensor& variable, Tensor& gradient, float step, double tolerance,
                   const Loss& loss) {
  for (int64_t i = 0; i < variable.shape.elements(); ++i) {
    const float kept = variable.data()[i];
    variable.data()[i] = kept + step;
    const double above = variable.data()[i], loss_above = loss();
    variable.data()[i] = kept - step;
    const double below = variable.data()[i], loss_below = loss();
    variable.data()[i] = kept;
    const double slope = (loss_above - loss_below) / (above - below);
    ASSERT_NEAR(gradient.data()[i], slope, tolerance * (1 + std::abs(slope))) << "element " << i;
  }
}

#define RUN_OK(...)                                  \
  do {                                               \
    const absl::Status status_ = RunOp(__VA_ARGS__); \
    EXPECT_TRUE(status_.ok()) << status_;            \
  } while (false)

struct Codes {
  OpCode forward, input_gradient, weight_gradient;
};

void CheckConvOrLinear(OpKind kind, const Codes& codes) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Case c = RandomCase(kind, seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", x " << c.x.ToString());
    Tensor x = Normal(c.x, seed, 0), weights = Normal(c.y, seed, 1);
    std::vector<Tensor> state, gradients;
    for (size_t i = 0; i < c.state.size(); ++i) {
      state.push_back(Normal(c.state[i].shape, seed, 2 + i));
      gradients.push_back(Zeros(c.state[i].shape));
    }
    std::vector<Tensor*> inputs = {&x}, outputs;
    for (Tensor& tensor : state) inputs.push_back(&tensor);
    for (Tensor& tensor : gradients) outputs.push_back(&tensor);
    const auto loss = [&] {
      Tensor y = Zeros(c.y);
      RUN_OK(codes.forward, c.spec, inputs, {&y});
      return Weighted(y, weights);
    };
    Tensor dx = Zeros(c.x);
    RUN_OK(codes.input_gradient, c.spec, {&weights, &state[0]}, {&dx});
    RUN_OK(codes.weight_gradient, c.spec, {&weights, &x}, outputs);
    CheckGradient(x, dx, 1, 1e-5, loss);
    for (size_t i = 0; i < state.size(); ++i) CheckGradient(state[i], gradients[i], 1, 1e-5, loss);
  }
}

TEST(RefGradient, Conv) {
  CheckConvOrLinear(OpKind::kConv, {OpCode::kConvForward, OpCode::kConvInputGradient,
                                    OpCode::kConvWeightGradient});
}

TEST(RefGradient, Linear) {
  CheckConvOrLinear(OpKind::kLinear, {OpCode::kLinearForward, OpCode::kLinearInputGradient,
                                      OpCode::kLinearWeightGradient});
}

TEST(RefGradient, BatchNorm) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Case c = RandomCase(OpKind::kBatchNorm, seed);
    c.spec.epsilon = 0.1;  // keeps third derivatives small
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", x " << c.x.ToString());
    const Shape channels = {c.x[1]};
    Tensor x = Normal(c.x, seed, 0), weights = Normal(c.y, seed, 1);
    Tensor scale = Normal(channels, seed, 2), shift = Normal(channels, seed, 3);
    Tensor stats = Zeros({2 * c.x[1]}), mean = Zeros(channels), var = Zeros(channels);
    const auto loss = [&] {
      Tensor y = Zeros(c.y);
      RUN_OK(OpCode::kBatchNormForward, c.spec, {&x, &scale, &shift}, {&y, &stats, &mean, &var});
      return Weighted(y, weights);
    };
    loss();
    Tensor dx = Zeros(c.x), sums = Zeros({2 * c.x[1]});
    Tensor dscale = Zeros(channels), dshift = Zeros(channels);
    RUN_OK(OpCode::kBatchNormInputGradient, c.spec, {&weights, &x, &scale, &stats}, {&dx, &sums});
    RUN_OK(OpCode::kBatchNormWeightGradient, c.spec, {&sums}, {&dscale, &dshift});
    CheckGradient(x, dx, 4e-3f, 1e-3, loss);
    CheckGradient(scale, dscale, 1, 1e-5, loss);
    CheckGradient(shift, dshift, 1, 1e-5, loss);
  }
}

enum class Keeps { kNothing, kOutput, kIndices };

void CheckUnary(OpKind kind, OpCode forward, OpCode backward, Keeps keeps, float step) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Case c = RandomCase(kind, seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", x " << c.x.ToString());
    const StepContext context = {.run_seed = seed, .sequence = Sequence(3)};
    Tensor x = Spaced(c.x, seed, 0.125f), weights = Normal(c.y, seed, 1);
    Tensor y = Zeros(c.y), indices = Zeros(c.y, DType::kUInt8), dx = Zeros(c.x);
    std::vector<Tensor*> outputs = {&y}, operands = {&weights};
    if (keeps == Keeps::kIndices) outputs.push_back(&indices);
    if (keeps == Keeps::kIndices) operands.push_back(&indices);
    if (keeps == Keeps::kOutput) operands.push_back(&y);
    const auto loss = [&] {
      RUN_OK(forward, c.spec, {&x}, outputs, context);
      return Weighted(y, weights);
    };
    loss();
    RUN_OK(backward, c.spec, operands, {&dx}, context);
    CheckGradient(x, dx, step, 1e-4, loss);
  }
}

TEST(RefGradient, Relu) {
  CheckUnary(OpKind::kRelu, OpCode::kReluForward, OpCode::kReluInputGradient, Keeps::kOutput,
             0.03125f);
}
TEST(RefGradient, Relu6) {
  CheckUnary(OpKind::kRelu6, OpCode::kRelu6Forward, OpCode::kRelu6InputGradient, Keeps::kOutput,
             0.03125f);
}
TEST(RefGradient, Gates) {
  CheckUnary(OpKind::kSigmoid, OpCode::kSigmoidForward, OpCode::kSigmoidInputGradient,
             Keeps::kOutput, 0.03125f);
  CheckUnary(OpKind::kHardSigmoid, OpCode::kHardSigmoidForward, OpCode::kHardSigmoidInputGradient,
             Keeps::kOutput, 0.03125f);
  CheckUnary(OpKind::kLeakyRelu, OpCode::kLeakyReluForward, OpCode::kLeakyReluInputGradient,
             Keeps::kOutput, 0.03125f);
}

// Of x and of a factor for each channel, or each element.
TEST(RefGradient, Multiply) {
  for (const Shape& factor_shape : {Shape({2, 3}), Shape({2, 3, 4, 5})}) {
    const Shape shape = {2, 3, 4, 5};
    Tensor x = Normal(shape, 1, 0), factor = Normal(factor_shape, 1, 1);
    Tensor weights = Normal(shape, 1, 2), dx = Zeros(shape), dfactor = Zeros(factor_shape);
    const auto loss = [&] {
      Tensor y = Zeros(shape);
      RUN_OK(OpCode::kMultiply, {}, {&x, &factor}, {&y});
      return Weighted(y, weights);
    };
    RUN_OK(OpCode::kMultiply, {}, {&weights, &factor}, {&dx});
    RUN_OK(OpCode::kFactorGradient, {}, {&weights, &x}, {&dfactor});
    CheckGradient(x, dx, 1, 1e-5, loss);
    CheckGradient(factor, dfactor, 1, 1e-5, loss);
  }
}

TEST(RefGradient, Concat) {
  const Shape left = {2, 3, 4}, right = {2, 2, 4}, both = {2, 5, 4};
  Tensor a = Normal(left, 1, 0), b = Normal(right, 1, 1), weights = Normal(both, 1, 2);
  Tensor da = Zeros(left), db = Zeros(right);
  const auto loss = [&] {
    Tensor y = Zeros(both);
    RUN_OK(OpCode::kConcatForward, {}, {&a, &b}, {&y});
    return Weighted(y, weights);
  };
  RUN_OK(OpCode::kFirstChannels, {}, {&weights}, {&da});
  RUN_OK(OpCode::kLastChannels, {}, {&weights}, {&db});
  CheckGradient(a, da, 1, 1e-5, loss);
  CheckGradient(b, db, 1, 1e-5, loss);
}

TEST(RefGradient, Dropout) {
  CheckUnary(OpKind::kDropout, OpCode::kDropoutForward, OpCode::kDropoutInputGradient,
             Keeps::kNothing, 1);
}
TEST(RefGradient, MaxPool) {
  CheckUnary(OpKind::kMaxPool, OpCode::kMaxPoolForward, OpCode::kMaxPoolInputGradient,
             Keeps::kIndices, 0.03125f);
}
TEST(RefGradient, AvgPool) {
  CheckUnary(OpKind::kAvgPool, OpCode::kAvgPoolForward, OpCode::kAvgPoolInputGradient,
             Keeps::kNothing, 1);
}
TEST(RefGradient, GlobalAvgPool) {
  CheckUnary(OpKind::kGlobalAvgPool, OpCode::kGlobalAvgPoolForward,
             OpCode::kGlobalAvgPoolInputGradient, Keeps::kNothing, 1);
}

TEST(RefGradient, SoftmaxCrossEntropy) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Draw draw(seed);
    const int64_t batch = 1 + draw(4), classes = 2 + draw(6);
    Tensor logits = Normal({batch, classes}, seed, 0), labels = Zeros({batch}, DType::kInt32);
    for (int64_t n = 0; n < batch; ++n) {
      labels.data<int32_t>()[n] = static_cast<int32_t>(draw(static_cast<uint32_t>(classes)));
    }
    Tensor gradient = Zeros({batch, classes}), unused = Zeros({batch, classes});
    Tensor metrics = Zeros({16}, DType::kUInt8);
    const StepContext context = {.step_labels = 3,
                                 .label_smoothing = static_cast<double>(seed % 2) / 4};
    RUN_OK(OpCode::kSoftmaxCrossEntropy, {}, {&logits, &labels}, {&gradient, &metrics}, context);
    CheckGradient(logits, gradient, 1e-3f, 1e-6, [&] {
      RUN_OK(OpCode::kSoftmaxCrossEntropy, {}, {&logits, &labels}, {&unused, &metrics}, context);
      return metrics.data<double>()[0] / 3;
    });
  }
}

}  // namespace
}  // namespace runnel::ref_gradient_test

#undef RUN_OK
