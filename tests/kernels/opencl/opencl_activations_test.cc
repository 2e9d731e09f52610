// Activations that the OpenCL backend keeps as halves: each instruction against ref on widened
// operands, and training. Skipped where there is no device.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/opencl/opencl_backend.h"
#include "tests/conformance/backend_cases.h"
#include "tests/kernels/op_harness.h"
#include "tests/kernels/opencl/half_floats.h"

namespace runnel::opencl::opencl_activations_test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeeds = 12;

// Which operands of an instruction may be halves; the first output where `output`.
struct Row {
  OpCode code;
  std::vector<size_t> inputs;
  bool output = true;
};

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {{OpCode::kConvForward, {0}},
                                        {OpCode::kLinearForward, {0}},
                                        {OpCode::kBatchNormForward, {0}},
                                        {OpCode::kBatchNormAgain, {0}},
                                        {OpCode::kReluForward, {0}},
                                        {OpCode::kRelu6Forward, {0}},
                                        {OpCode::kDropoutForward, {0}},
                                        {OpCode::kMaxPoolForward, {0}},
                                        {OpCode::kAvgPoolForward, {0}},
                                        {OpCode::kGlobalAvgPoolForward, {0}},
                                        {OpCode::kAddForward, {0, 1}},
                                        {OpCode::kFakeQuantizeActivation, {0}},
                                        {OpCode::kBatchNormInputGradient, {1}, false},
                                        {OpCode::kReluInputGradient, {1}, false},
                                        {OpCode::kRelu6InputGradient, {1}, false},
                                        {OpCode::kConvWeightGradient, {1}, false},
                                        {OpCode::kLinearWeightGradient, {1}, false},
                                        {OpCode::kFakeQuantizeActivationGradient, {1}, false}};
  return rows;
}

enum class Stored : uint8_t { kFloats, kHalves, kRounded };

void MapFloats(CaseOperand& operand, double (*map)(double)) {
  auto* values = reinterpret_cast<float*>(operand.bytes.data());
  for (int64_t i = 0; i < operand.shape.elements(); ++i)
    values[i] = static_cast<float>(map(double{values[i]}));
}

Tensor TensorOf(const CaseOperand& operand, Stored stored) {
  Tensor tensor = {operand.dtype, operand.shape, operand.bytes};
  if (stored == Stored::kRounded) tensor.values_of = DType::kFloat16;
  if (stored != Stored::kHalves) return tensor;
  tensor.dtype = DType::kFloat16;
  tensor.bytes.assign(static_cast<size_t>(operand.shape.elements()) * sizeof(uint16_t), {});
  for (int64_t i = 0; i < operand.shape.elements(); ++i) {
    const float value = reinterpret_cast<const float*>(operand.bytes.data())[i];
    tensor.data<uint16_t>()[i] = HalfBits(value);
  }
  return tensor;
}

double ValueOf(Tensor& tensor, int64_t i) {
  if (tensor.dtype == DType::kFloat16) return HalfOf(tensor.data<uint16_t>()[i]);
  if (tensor.dtype == DType::kUInt8) return tensor.data<uint8_t>()[i];
  return tensor.data()[i];
}

// The case with operands stored so, inputs first; what it gives.
std::vector<Tensor> Compute(const Case& c, const std::vector<Stored>& stored, Backend& backend) {
  std::vector<Tensor> operands;
  for (size_t i = 0; i < stored.size(); ++i) {
    const size_t inputs = c.inputs.size();
    operands.push_back(TensorOf(i < inputs ? c.inputs[i] : c.outputs[i - inputs], stored[i]));
  }
  std::vector<Tensor*> inputs, outputs;
  for (size_t i = 0; i < operands.size(); ++i)
    (i < c.inputs.size() ? inputs : outputs).push_back(&operands[i]);
  const absl::Status status =
      RunOp(c.code, c.attributes, inputs, outputs, c.context, 3, 2, &backend, {}, c.grid);
  EXPECT_TRUE(status.ok()) << status;
  operands.erase(operands.begin(), operands.begin() + static_cast<ptrdiff_t>(c.inputs.size()));
  return operands;
}

double Allowed(const Bound& bound, double magnitude) {
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
  if (bound.kind == BoundKind::kExact) return 0;
  return bound.factor * kEpsilon *
         (bound.kind == BoundKind::kAbsolute ? bound.magnitude : magnitude);
}

class OpenClActivationsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto floats = MakeBackendWith({});
    if (!floats.ok()) GTEST_SKIP() << "no OpenCL here: " << floats.status().message();
    floats_ = *std::move(floats);
    auto halves = MakeBackendWith({.activations = "fp16"});
    ASSERT_TRUE(halves.ok()) << halves.status();
    halves_ = *std::move(halves);
    ref_ = *MakeRefBackend(1);
  }

  // Rounding is monotone: what may be `allowed` away from ref's value before it is rounded lies
  // between the rounded ends of that interval.
  void ExpectLikeRef(const Case& c, const std::vector<Stored>& stored) {
    const std::vector<Stored> floats(stored.size(), Stored::kFloats);
    Case absolute = c;
    for (auto* operands : {&absolute.inputs, &absolute.outputs}) {
      for (CaseOperand& o : *operands) {
        if (o.dtype == DType::kFloat32) MapFloats(o, [](double value) { return std::abs(value); });
      }
    }
    auto got = Compute(c, stored, *halves_), want = Compute(c, floats, *ref_);
    auto magnitudes = Compute(absolute, floats, *ref_);
    for (size_t i = 0; i < got.size(); ++i) {
      const bool rounds = stored[c.inputs.size() + i] != Stored::kFloats;
      const auto end = [&](double value) { return rounds ? RoundToHalf(value) : value; };
      for (int64_t e = 0; e < got[i].shape.elements(); ++e) {
        const double value = ValueOf(got[i], e), exact = ValueOf(want[i], e);
        const double allowed = Allowed(c.outputs[i].bound, ValueOf(magnitudes[i], e));
        const bool is_right = std::isnan(exact)
                                  ? std::isnan(value)
                                  : value >= end(exact - allowed) && value <= end(exact + allowed);
        const bool is_half = !rounds || std::isnan(value) || RoundToHalf(value) == value;
        ASSERT_TRUE(is_right && is_half) << "output " << i << " element " << e << ": " << value
                                         << ", ref " << exact << ", allowed " << allowed;
      }
    }
  }

  std::unique_ptr<Backend> floats_, halves_, ref_;
};

// Every choice of the operands that may be halves.
TEST_F(OpenClActivationsTest, EveryInstructionGivesWhatRefGivesOfWidenedOperandsRounded) {
  for (const Row& row : Rows()) {
    const size_t choices = size_t{1} << row.inputs.size();
    for (uint64_t seed = 1; seed <= kSeeds * choices * (row.output ? 3 : 1); ++seed) {
      Case c = *MakeCase(row.code, seed);
      const bool is_mean = c.attributes.kind == OpKind::kAvgPool;
      if (c.attributes.is_dilated() || (is_mean && c.attributes.is_padded())) continue;  // refused
      SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", c.ToString()));
      std::vector<Stored> stored(c.inputs.size() + c.outputs.size(), Stored::kFloats);
      const uint64_t choice = row.output ? seed / 3 : seed;
      for (size_t i = 0; i < row.inputs.size(); ++i) {
        if ((choice >> i & 1) == 0) continue;
        stored[row.inputs[i]] = Stored::kHalves;
        MapFloats(c.inputs[row.inputs[i]], RoundToHalf);
      }
      if (row.output) stored[c.inputs.size()] = static_cast<Stored>(seed % 3);
      ExpectLikeRef(c, stored);
      if (HasFatalFailure()) return;
    }
  }
}

// Ties, the ends of the range, halves with fewer bits, NaN.
TEST_F(OpenClActivationsTest, AResultIsRoundedOnceToTheNearestTiesToEven) {
  const float infinite = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1 + 0x1p-11F,
                                     1 + 3 * 0x1p-11F,
                                     1 + 0x1p-11F + 0x1p-23F,
                                     2049,
                                     2051,
                                     65504,
                                     65519.996F,
                                     65520,
                                     1e30F,
                                     0x1p-25F,
                                     0x1.8p-24F,
                                     0x1.000002p-25F,
                                     5.9999F,
                                     0.1F,
                                     infinite,
                                     0x1p-14F,
                                     1e-20F,
                                     0x1.ffep-15F};
  const std::vector<float> want = {1,     1 + 0x1p-9F, 1 + 0x1p-10F, 2048,     2052,     65504,
                                   65504, infinite,    infinite,     0,        0x1p-23F, 0x1p-24F,
                                   6,     0x1.998p-4F, infinite,     0x1p-14F, 0,        0x1p-14F};
  for (const float sign : {1.0F, -1.0F}) {
    Tensor zero = Zeros({1, 18}), x = Floats({1, 18}, values);
    for (int i = 0; i < 18; ++i) x.data()[i] *= sign;
    for (const bool as_half : {true, false}) {
      Tensor y = Zeros({1, 18}, as_half ? DType::kFloat16 : DType::kFloat32);
      if (!as_half) y.values_of = DType::kFloat16;
      ASSERT_TRUE(RunOp(OpCode::kAddForward, {}, {&x, &zero}, {&y}, {}, 0, 0, halves_.get()).ok());
      for (int i = 0; i < 18; ++i)
        EXPECT_EQ(ValueOf(y, i), sign * want[static_cast<size_t>(i)])
            << values[static_cast<size_t>(i)];
    }
  }
  Tensor nan = Floats({1, 1}, {std::nanf("")}), y = Zeros({1, 1}, DType::kFloat16);
  ASSERT_TRUE(RunOp(OpCode::kReluForward, {}, {&nan}, {&y}, {}, 0, 0, halves_.get()).ok());
  EXPECT_TRUE(std::isnan(ValueOf(y, 0)));
}

TEST_F(OpenClActivationsTest, TheNumericsClassTells) {
  EXPECT_EQ(halves_->numerics_class(), floats_->numerics_class() + "/fp16-activations");
  EXPECT_THAT(halves_->description(), HasSubstr(", activations fp16"));
  EXPECT_EQ(halves_->traits().stash, DType::kFloat16);
  EXPECT_EQ(floats_->traits().stash, DType::kFloat32);
}

}  // namespace
}  // namespace runnel::opencl::opencl_activations_test
