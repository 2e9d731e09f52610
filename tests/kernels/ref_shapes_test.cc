// Products of backend ref, in floats and in integers, on the named shapes of the conformance tests,
// against their definition. All sums are whole numbers, and exact.

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/named_shapes.h"
#include "tests/kernels/op_harness.h"

namespace runnel::ref_shapes_test {
namespace {

using ::testing::Pointwise;

#define RUN_OK(...)                                  \
  do {                                               \
    const absl::Status status_ = RunOp(__VA_ARGS__); \
    ASSERT_TRUE(status_.ok()) << status_;            \
  } while (false)

// Whole numbers, whose sums are exact as floats too, and as mantissas.
std::vector<int32_t> Numbers(const Shape& shape, uint64_t seed, uint64_t stream) {
  const CounterRandom random(seed, RandomPurpose::kTest, 9, stream);
  std::vector<int32_t> numbers(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<int32_t>(random.Below(i, 255)) - 127;
  return numbers;
}

Tensor FloatsOf(const Shape& shape, const std::vector<int32_t>& numbers) {
  return Floats(shape, std::vector<float>(numbers.begin(), numbers.end()));
}
Tensor MantissasOf(const Shape& shape, const std::vector<int32_t>& numbers) {
  Tensor tensor = ScaledTensor(shape, DType::kInt8);
  for (size_t i = 0; i < numbers.size(); ++i)
    tensor.data<int8_t>()[i] = static_cast<int8_t>(numbers[i]);
  return tensor;
}

// (out, in, kernel...) as (out, kernel..., in), where weights of integers lie so; 4 dimensions.
std::vector<int32_t> InputsLast(const Shape& shape, const std::vector<int32_t>& weight) {
  std::vector<int32_t> turned(weight.size());
  const int64_t in = shape[1], taps = shape[2] * shape[3];
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const int64_t tap = i % taps, channel = i / taps % in, o = i / taps / in;
    turned[static_cast<size_t>((o * taps + tap) * in + channel)] = weight[static_cast<size_t>(i)];
  }
  return turned;
}

void ExpectSums(Tensor& floats, Tensor& integers, const std::vector<int32_t>& sums,
                const std::vector<int32_t>& in_memory) {
  EXPECT_THAT(floats.values(), Pointwise(testing::Eq(), sums));
  const int32_t* got = integers.data<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(got, got + in_memory.size()), in_memory);
}

struct ConvCase {
  OpSpec spec;
  Shape x, weight, y;
};

// The definition: calls term(y index, x index, weight index) for every product.
template <typename Term>
void ForEachProduct(const ConvCase& c, const Term& term) {
  const auto &kernel = c.spec.kernel, &stride = c.spec.stride, &padding = c.spec.padding;
  const int64_t group_in = c.weight[1], group_out = c.y[1] / c.spec.groups;
  for (int64_t o = 0; o < c.y.elements(); ++o) {
    const int64_t ow = o % c.y[3], oh = o / c.y[3] % c.y[2], oc = o / c.y[3] / c.y[2] % c.y[1];
    const int64_t n = o / c.y[3] / c.y[2] / c.y[1];
    for (int64_t k = 0; k < group_in * kernel[0] * kernel[1]; ++k) {
      const int64_t ic = oc / group_out * group_in + k / kernel[0] / kernel[1];
      const int64_t ih = oh * stride[0] + k / kernel[1] % kernel[0] - padding[0];
      const int64_t iw = ow * stride[1] + k % kernel[1] - padding[1];
      if (ih < 0 || ih >= c.x[2] || iw < 0 || iw >= c.x[3]) continue;
      term(o, ((n * c.x[1] + ic) * c.x[2] + ih) * c.x[3] + iw,
           oc * group_in * kernel[0] * kernel[1] + k);
    }
  }
}

TEST(RefConv, IsItsDefinitionOnNamedShapes) {
  for (const NamedConv& named : kNamedConvs) {
    ConvCase c;
    c.y = TakeNamedConv(named, c.spec, c.x);
    c.weight = {c.spec.out_channels, c.x[1] / c.spec.groups, named.kernel_h, named.kernel_w};
    SCOPED_TRACE(testing::Message()
                 << c.x.ToString() << " * " << c.weight.ToString() << " -> " << c.y.ToString());
    const std::vector<int32_t> x = Numbers(c.x, 1, 0), w = Numbers(c.weight, 1, 1),
                               dy = Numbers(c.y, 1, 2);
    std::vector<int32_t> y_sum(c.y.elements()), dx_sum(c.x.elements()), dw_sum(c.weight.elements());
    ForEachProduct(c, [&](int64_t o, int64_t i, int64_t k) {
      y_sum[o] += x[i] * w[k];
      dx_sum[i] += dy[o] * w[k];
      dw_sum[k] += dy[o] * x[i];
    });
    Tensor fx = FloatsOf(c.x, x), fw = FloatsOf(c.weight, w), fdy = FloatsOf(c.y, dy);
    Tensor fy = Zeros(c.y), fdx = Zeros(c.x), fdw = Zeros(c.weight);
    RUN_OK(OpCode::kConvForward, c.spec, {&fx, &fw}, {&fy});
    RUN_OK(OpCode::kConvInputGradient, c.spec, {&fdy, &fw}, {&fdx});
    RUN_OK(OpCode::kConvWeightGradient, c.spec, {&fdy, &fx}, {&fdw});
    Tensor ix = MantissasOf(c.x, x), iw = MantissasOf(c.weight, InputsLast(c.weight, w)),
           idy = MantissasOf(c.y, dy);
    Tensor iy = ScaledTensor(c.y, DType::kInt32), idx = ScaledTensor(c.x, DType::kInt32),
           idw = ScaledTensor(c.weight, DType::kInt32);
    RUN_OK(OpCode::kInt8ConvForward, c.spec, {&ix, &iw}, {&iy});
    RUN_OK(OpCode::kInt8ConvInputGradient, c.spec, {&idy, &iw}, {&idx});
    RUN_OK(OpCode::kInt8ConvWeightGradient, c.spec, {&idy, &ix}, {&idw});
    ExpectSums(fy, iy, y_sum, y_sum);
    ExpectSums(fdx, idx, dx_sum, dx_sum);
    ExpectSums(fdw, idw, dw_sum, InputsLast(c.weight, dw_sum));
  }
}

OpSpec LinearSpec() {
  OpSpec spec;
  spec.kind = OpKind::kLinear;
  return spec;
}

TEST(RefLinear, IsItsDefinitionOnNamedShapes) {
  const OpSpec spec = LinearSpec();
  for (const NamedProduct& p : kNamedProducts) {
    const Shape x_shape = {p.rows, p.depth}, w_shape = {p.columns, p.depth},
                y_shape = {p.rows, p.columns};
    SCOPED_TRACE(testing::Message() << x_shape.ToString() << " * " << w_shape.ToString());
    const std::vector<int32_t> x = Numbers(x_shape, 2, 0), w = Numbers(w_shape, 2, 1),
                               dy = Numbers(y_shape, 2, 2);
    std::vector<int32_t> y(dy.size()), dx(x.size()), dw(w.size());
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t c = 0; c < p.columns; ++c) {
        for (int64_t k = 0; k < p.depth; ++k) {
          y[r * p.columns + c] += x[r * p.depth + k] * w[c * p.depth + k];
          dx[r * p.depth + k] += dy[r * p.columns + c] * w[c * p.depth + k];
          dw[c * p.depth + k] += dy[r * p.columns + c] * x[r * p.depth + k];
        }
      }
    }
    Tensor fx = FloatsOf(x_shape, x), fw = FloatsOf(w_shape, w), fdy = FloatsOf(y_shape, dy);
    Tensor fy = Zeros(y_shape), fdx = Zeros(x_shape), fdw = Zeros(w_shape);
    RUN_OK(OpCode::kLinearForward, spec, {&fx, &fw}, {&fy});
    RUN_OK(OpCode::kLinearInputGradient, spec, {&fdy, &fw}, {&fdx});
    RUN_OK(OpCode::kLinearWeightGradient, spec, {&fdy, &fx}, {&fdw});
    Tensor ix = MantissasOf(x_shape, x), iw = MantissasOf(w_shape, w),
           idy = MantissasOf(y_shape, dy);
    Tensor iy = ScaledTensor(y_shape, DType::kInt32), idx = ScaledTensor(x_shape, DType::kInt32),
           idw = ScaledTensor(w_shape, DType::kInt32);
    RUN_OK(OpCode::kInt8LinearForward, spec, {&ix, &iw}, {&iy});
    RUN_OK(OpCode::kInt8LinearInputGradient, spec, {&idy, &iw}, {&idx});
    RUN_OK(OpCode::kInt8LinearWeightGradient, spec, {&idy, &ix}, {&idw});
    ExpectSums(fy, iy, y, y);
    ExpectSums(fdx, idx, dx, dx);
    ExpectSums(fdw, idw, dw, dw);
  }
}

}  // namespace
}  // namespace runnel::ref_shapes_test

#undef RUN_OK
