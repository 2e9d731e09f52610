// Every backend of the table against ref, instruction by instruction.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "tests/conformance/backend_cases.h"
#include "tests/conformance/case_bench.h"
#include "tests/conformance/named_shapes.h"
#include "tests/support/case_count.h"

namespace runnel::backend_conformance_test {
namespace {

constexpr uint64_t kFirstSeed = 1;
const uint64_t kSeeds = CaseCount(40);

// All codes of floats. integer_conformance_test has the others.
std::vector<OpCode> AllCodes() {
  std::vector<OpCode> codes;
  for (int i = 0; i < OpCodeCount(); ++i) {
    const Numbers numbers = TraitsOf(static_cast<OpCode>(i)).numbers;
    if (numbers != Numbers::kIntegers && numbers != Numbers::kCodes)
      codes.push_back(static_cast<OpCode>(i));
  }
  return codes;
}

// Random cases, and rows of named shapes.
std::vector<uint64_t> SeedsOf(OpCode code) {
  std::vector<uint64_t> seeds;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) seeds.push_back(seed);
  uint64_t named = 0;
  if (code == OpCode::kConvForward || code == OpCode::kConvInputGradient ||
      code == OpCode::kConvWeightGradient) {
    named = kNamedConvCount;
  }
  if (code == OpCode::kLinearForward || code == OpCode::kLinearInputGradient ||
      code == OpCode::kLinearWeightGradient) {
    named = kNamedProductCount;
  }
  for (uint64_t i = 0; i < named; ++i) seeds.push_back(kFirstNamedSeed + i);
  return seeds;
}

bool IsEmbedding(OpCode code) {
  return code == OpCode::kEmbeddingForward || code == OpCode::kEmbeddingWeightGradient;
}

// Codes of grids and their products.
bool IsOfCodes(OpCode code) {
  constexpr OpCode kCodes[] = {
      OpCode::kAffineWeightCodes,
      OpCode::kAffineActivationCodes,
      OpCode::kAffineActivationCodesEval,
      OpCode::kPackCodes,
      OpCode::kUnpackCodes,
      OpCode::kAffineErrorCodes,
      OpCode::kSymmetricWeightCodes,
      OpCode::kSymmetricActivationCodes,
      OpCode::kSymmetricActivationCodesEval,
      OpCode::kSymmetricErrorCodes,
      OpCode::kClippedErrorCodes,
      OpCode::kCodesForward,
      OpCode::kCodesInputGradient,
      OpCode::kCodesWeightGradient,
  };
  return std::find(std::begin(kCodes), std::end(kCodes), code) != std::end(kCodes);
}

// Which OpenCL does not compute.
bool IsOfTransformersBranchesOrRanges(OpCode code) {
  constexpr OpCode kCodes[] = {OpCode::kLayerNormForward,
                               OpCode::kLayerNormInputGradient,
                               OpCode::kGeluForward,
                               OpCode::kGeluInputGradient,
                               OpCode::kAttentionForward,
                               OpCode::kAttentionInputGradient,
                               OpCode::kSigmoidForward,
                               OpCode::kSigmoidInputGradient,
                               OpCode::kHardSigmoidForward,
                               OpCode::kHardSigmoidInputGradient,
                               OpCode::kLeakyReluForward,
                               OpCode::kLeakyReluInputGradient,
                               OpCode::kMultiply,
                               OpCode::kFactorGradient,
                               OpCode::kConcatForward,
                               OpCode::kFirstChannels,
                               OpCode::kLastChannels,
                               OpCode::kSliceForward,
                               OpCode::kSliceInputGradient,
                               OpCode::kShuffleForward,
                               OpCode::kShuffleInputGradient,
                               OpCode::kAffineWeight,
                               OpCode::kAffineActivation,
                               OpCode::kAffineActivationEval,
                               OpCode::kAffineError,
                               OpCode::kSymmetricWeight,
                               OpCode::kSymmetricActivation,
                               OpCode::kSymmetricActivationEval,
                               OpCode::kClippedError,
                               OpCode::kCounterDeviation,
                               OpCode::kMultiLevelWeight,
                               OpCode::kMultiLevelActivation,
                               OpCode::kMultiLevelError,
                               OpCode::kSymmetricError,
                               OpCode::kSmallFloat,
                               OpCode::kRangeNormForward,
                               OpCode::kRangeNormEval,
                               OpCode::kRangeNormInputGradient,
                               OpCode::kChunkedConvForward,
                               OpCode::kChunkedConvInputGradient,
                               OpCode::kChunkedConvWeightGradient,
                               OpCode::kChunkedLinearForward,
                               OpCode::kChunkedLinearInputGradient,
                               OpCode::kChunkedLinearWeightGradient,
                               OpCode::kRoundedUpdate,
                               OpCode::kAdaptWidth,
                               OpCode::kCompensate,
                               OpCode::kCompensationGradient,
                               OpCode::kFixedPoint,
                               OpCode::kShiftError,
                               OpCode::kFlagError,
                               OpCode::kShiftedReluInputGradient,
                               OpCode::kFixedNormForward,
                               OpCode::kFixedNormEval,
                               OpCode::kFixedNormInputGradient,
                               OpCode::kFixedUpdate};
  return IsEmbedding(code) || IsOfCodes(code) ||
         std::find(std::begin(kCodes), std::end(kCodes), code) != std::end(kCodes);
}

// Only cpu has gates. LibTorch and `small` have no kernels for recipes that fake-quantise, OpenCL none for tokens,
// branches and grids of ranges.
bool MayBeMissing(const BackendRow& row, OpCode code) {
  const bool is_of_gates = code == OpCode::kHoldSamples || code == OpCode::kAllSamples ||
                           code == OpCode::kGatherSamples || code == OpCode::kScatterSamples ||
                           code == OpCode::kChooseSamples || code == OpCode::kMaskGradient ||
                           code == OpCode::kChoiceGradient || code == OpCode::kLstmForward ||
                           code == OpCode::kLstmInputGradient || code == OpCode::kLstmStateGradient;
  const bool is_of_masks = code == OpCode::kReluMask || code == OpCode::kRelu6Mask ||
                           code == OpCode::kMaskedInputGradient;
  if (is_of_gates || is_of_masks) return row.name != "cpu";
  const bool has_no_grids = row.name == "torch" || row.name == "small";
  return (has_no_grids && TraitsOf(code).numbers == Numbers::kGridFloats) ||
         (row.name == "opencl" && IsOfTransformersBranchesOrRanges(code));
}

// A window that the backend's traits leave out (CheckWindows).
bool IsLeftOut(const BackendTraits& traits, const Case& c) {
  const OpSpec& op = c.attributes;
  if (op.kind == OpKind::kConv && op.is_dilated()) return !traits.dilates;
  if (op.kind == OpKind::kAvgPool && op.is_padded()) return !traits.pads_means;
  return op.pads_by_side() && !traits.pads_by_side;
}

// The same case with absolute values, where every sum is a sum of magnitudes.
Case Magnitudes(const Case& c) {
  Case result = c;
  for (auto* operands : {&result.inputs, &result.outputs}) {
    for (CaseOperand& o : *operands) {
      if (o.dtype != DType::kFloat32) continue;
      float* values = reinterpret_cast<float*>(o.bytes.data());
      for (int64_t i = 0; i < o.shape.elements(); ++i) values[i] = std::fabs(values[i]);
    }
  }
  return result;
}

double ValueOf(const CaseOperand& o, const std::byte* data, int64_t i) {
  if (o.is_double) return reinterpret_cast<const double*>(data)[i];
  if (o.dtype == DType::kUInt8) return static_cast<double>(data[i]);
  if (o.dtype == DType::kInt8) return static_cast<int8_t>(data[i]);
  return reinterpret_cast<const float*>(data)[i];
}

// A sum of n products in any order errs by at most about n roundings of the sum of the products'
// magnitudes (Higham, Accuracy and Stability, 3.1), on either side; eps = 2^-23 is two roundings.
double Allowed(const CaseOperand& o, const std::byte* magnitudes, int64_t i) {
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
  const Bound& b = o.bound;
  if (b.kind == BoundKind::kExact) return 0;
  if (b.kind == BoundKind::kAbsolute) return b.factor * kEpsilon * b.magnitude;
  return b.factor * kEpsilon * ValueOf(o, magnitudes, i);
}

// Largest error of all written operands as a share of what is allowed.
void ExpectLikeRef(const Case& c, const Bench& ours, const Bench& ref, const Bench& magnitudes) {
  for (size_t i = 0; i < c.inputs.size() + c.outputs.size(); ++i) {
    const CaseOperand& o = OperandOf(c, i);
    if (!o.written) {
      EXPECT_EQ(std::memcmp(ours.Data(i), o.bytes.data(), o.bytes.size()), 0)
          << "operand " << i << " is only to be read";
      continue;
    }
    const int64_t count = o.is_double ? 2 : o.shape.elements();
    int wrong = 0;
    for (int64_t e = 0; e < count; ++e) {
      const double got = ValueOf(o, ours.Data(i), e), want = ValueOf(o, ref.Data(i), e);
      const double allowed = Allowed(o, magnitudes.Data(i), e);
      if (std::abs(got - want) <= allowed || (std::isnan(got) && std::isnan(want))) continue;
      if (wrong++ < 3) {
        ADD_FAILURE() << "operand " << i << " element " << e << ": " << got << ", ref " << want
                      << ", allowed " << allowed;
      }
    }
    EXPECT_EQ(wrong, 0) << "of " << count << " elements of operand " << i;
  }
}

class ConformanceTest : public testing::TestWithParam<const BackendRow*> {};

TEST_P(ConformanceTest, EveryCodeGivesWhatRefGives) {
  auto backend = GetParam()->make({});
  auto oracle = MakeBackend("ref", 1);
  ASSERT_TRUE(backend.ok() && oracle.ok());
  for (OpCode code : AllCodes()) {
    for (const uint64_t seed : SeedsOf(code)) {
      const std::optional<Case> c = MakeCase(code, seed);
      ASSERT_TRUE(c.has_value()) << "no case for " << std::string(Name(code));
      SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", c->ToString()));
      const Case absolute = Magnitudes(*c);
      Bench ours(*c), again(*c), ref(*c), magnitudes(absolute);
      const absl::Status status = ours.Run(backend->get());
      if (MayBeMissing(*GetParam(), code) && absl::IsUnimplemented(status)) break;
      if (IsLeftOut((*backend)->traits(), *c)) {
        ASSERT_TRUE(absl::IsUnimplemented(status)) << status;
        EXPECT_THAT(std::string(status.message()), testing::HasSubstr("take --backend"));
        continue;
      }
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(again.Run(backend->get()).ok());
      ASSERT_TRUE(ref.Run(oracle->get()).ok());
      ASSERT_TRUE(magnitudes.Run(oracle->get()).ok());
      ExpectLikeRef(*c, ours, ref, magnitudes);
      ExpectSameBytes(*c, ours, again);
    }
  }
}

TEST_P(ConformanceTest, InPlaceGivesTheSameBytes) {
  auto backend = GetParam()->make({});
  ASSERT_TRUE(backend.ok());
  for (OpCode code : AllCodes()) {
    if (!TraitsOf(code).in_place) continue;
    for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) {
      const std::optional<Case> c = MakeCase(code, seed);
      ASSERT_TRUE(c.has_value());
      SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", c->ToString()));
      Bench apart(*c), in_place(*c, true);
      const absl::Status status = apart.Run(backend->get());
      if (MayBeMissing(*GetParam(), code) && absl::IsUnimplemented(status)) break;
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(in_place.Run(backend->get()).ok());
      ExpectSameBytes(*c, apart, in_place);
    }
  }
}

// Sums of 64 bits are ref's. Odd channels, padding and groups are among the shapes.
void ExpectBytesOfRefOnEveryInstructionSet(const std::vector<OpCode>& codes) {
  auto oracle = MakeBackend("ref", 1);
  ASSERT_TRUE(oracle.ok());
  for (const std::string& set : CpuInstructionSets()) {
    auto backend = MakeCappedCpuBackend(set, 2);
    ASSERT_TRUE(backend.ok()) << backend.status();
    for (const OpCode code : codes) {
      const bool is_of_codes = IsOfCodes(code) && TraitsOf(code).is_product();
      for (uint64_t seed = 1; seed <= CaseCount(is_of_codes ? 200 : 20); ++seed) {
        const Case c = *MakeCase(code, seed);
        SCOPED_TRACE(absl::StrCat(set, ", seed ", seed, ": ", c.ToString()));
        Bench ours(c), ref(c);
        ASSERT_TRUE(ours.Run(backend->get()).ok());
        ASSERT_TRUE(ref.Run(oracle->get()).ok());
        ExpectSameBytes(c, ours, ref);
      }
    }
  }
}

TEST(ProductsOfCodes, AreTheSameBytesOnEveryInstructionSet) {
  ExpectBytesOfRefOnEveryInstructionSet(
      {OpCode::kAffineWeightCodes, OpCode::kAffineActivationCodes, OpCode::kPackCodes,
       OpCode::kUnpackCodes, OpCode::kAffineErrorCodes, OpCode::kSymmetricWeightCodes,
       OpCode::kSymmetricActivationCodes, OpCode::kSymmetricErrorCodes, OpCode::kClippedErrorCodes,
       OpCode::kCodesForward, OpCode::kCodesInputGradient, OpCode::kCodesWeightGradient});
}

TEST(FloatsOnGrids, AreTheSameBytesOnEveryInstructionSet) {
  std::vector<OpCode> codes = AllCodes();
  std::erase_if(codes, [](OpCode code) {
    if (TraitsOf(code).numbers != Numbers::kGridFloats || IsOfCodes(code)) return true;
    const std::vector<CaseOperand> outputs = MakeCase(code, 1)->outputs;
    return std::any_of(outputs.begin(), outputs.end(), [](const CaseOperand& output) {
      return output.bound.kind != BoundKind::kExact;
    });
  });
  EXPECT_GT(codes.size(), 20u);
  ExpectBytesOfRefOnEveryInstructionSet(codes);
}

TEST_P(ConformanceTest, RefusesALabelThatIsNoClass) {
  auto backend = GetParam()->make({});
  ASSERT_TRUE(backend.ok());
  for (OpCode code : {OpCode::kSoftmaxCrossEntropy, OpCode::kSoftmaxCrossEntropyEval}) {
    for (int32_t label : {-1, 100, std::numeric_limits<int32_t>::min()}) {
      Case c = *MakeCase(code, 1);
      std::memcpy(c.inputs[1].bytes.data(), &label, sizeof(label));
      Bench bench(c);
      EXPECT_EQ(bench.Run(backend->get()).code(), absl::StatusCode::kInvalidArgument) << label;
    }
  }
}

TEST_P(ConformanceTest, RefusesATokenThatIsNoRow) {
  auto backend = GetParam()->make({});
  ASSERT_TRUE(backend.ok());
  for (OpCode code : AllCodes()) {
    if (!IsEmbedding(code) || MayBeMissing(*GetParam(), code)) continue;
    for (int32_t token : {-1, 60, std::numeric_limits<int32_t>::min()}) {
      Case c = *MakeCase(code, 1);
      CaseOperand& tokens = c.inputs[c.part() == Part::kForward ? 0 : 1];
      std::memcpy(tokens.bytes.data() + tokens.bytes.size() - 4, &token, sizeof(token));
      Bench bench(c);
      EXPECT_EQ(bench.Run(backend->get()).code(), absl::StatusCode::kInvalidArgument) << token;
    }
  }
}

// Some compute integer recipes alone (integer_conformance_test.cc), or are not there.
bool ComputesFp32(const BackendRow& row) {
  if (!row.is_loaded()) return true;
  auto backend = row.make({});
  if (!backend.ok()) return row.is_installed(row.name, {});
  Case c = *MakeCase(OpCode::kReluForward, 1);
  return !absl::IsUnimplemented(Bench(c).Run(backend->get()));
}

std::vector<const BackendRow*> Rows() {
  std::vector<const BackendRow*> rows;
  for (const BackendRow& row : BuiltinBackends()) {
    if (ComputesFp32(row)) rows.push_back(&row);
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Table, ConformanceTest, testing::ValuesIn(Rows()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace runnel::backend_conformance_test
