// Every backend, instruction set and thread count that runs integer recipes against ref,
// instruction by instruction, byte by byte.

#include <malloc.h>

#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "tests/conformance/integer_cases.h"
#include "tests/conformance/named_shapes.h"
#include "tests/kernels/integer_backends.h"
#include "tests/support/case_count.h"

namespace runnel::integer_conformance_test {
namespace {

std::vector<OpCode> IntegerCodes() {
  std::vector<OpCode> codes;
  for (int i = 0; i < OpCodeCount(); ++i) {
    const Numbers numbers = TraitsOf(static_cast<OpCode>(i)).numbers;
    if (numbers == Numbers::kIntegers || numbers == Numbers::kCodes)
      codes.push_back(static_cast<OpCode>(i));
  }
  return codes;
}

// Rows of named shapes for the code.
uint64_t NamedCases(OpCode code) {
  if (!TraitsOf(code).is_integer_product()) return 0;
  return MakeIntegerCase(code, 1)->attributes.kind == OpKind::kLinear ? kNamedProductCount
                                                                      : kNamedConvCount;
}

absl::Status RunCase(IntegerCase& c, Backend* backend) {
  std::vector<Tensor*> inputs, outputs;
  for (Tensor& t : c.inputs) inputs.push_back(&t);
  for (Tensor& t : c.outputs) outputs.push_back(&t);
  return RunOp(c.code, c.attributes, inputs, outputs, c.context, 3, 2, backend, c.rule, {},
               c.rescale, c.split);
}

// What a tensor means: the elements, and the tail of a scaled one (between them is padding).
void ExpectSameTensor(const Tensor& got, const Tensor& want) {
  const size_t bytes = static_cast<size_t>(want.shape.elements()) * SizeOf(want.dtype);
  for (size_t i = 0; i < bytes; ++i) {
    ASSERT_EQ(static_cast<int>(got.bytes[i]), static_cast<int>(want.bytes[i]))
        << "element " << i / SizeOf(want.dtype);
  }
  if (!want.scaled) return;
  const ScaleTail& a = TailOf(got.bytes.data(), want.dtype, want.shape);
  const ScaleTail& b = TailOf(want.bytes.data(), want.dtype, want.shape);
  EXPECT_EQ(a.exponent, b.exponent);
  EXPECT_EQ(a.max_abs, b.max_abs);
}

// Of outputs; inputs are as they were.
void ExpectSameAsRef(IntegerCase ours, Backend* backend, Backend* oracle) {
  const IntegerCase before = ours;
  IntegerCase ref = ours;
  const absl::Status status = RunCase(ours, backend);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(RunCase(ref, oracle).ok());
  for (size_t i = 0; i < ref.outputs.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "output " << i);
    ExpectSameTensor(ours.outputs[i], ref.outputs[i]);
  }
  for (size_t i = 0; i < ref.inputs.size(); ++i) {
    EXPECT_EQ(ours.inputs[i].bytes, before.inputs[i].bytes) << "input " << i << " was written";
  }
}

class IntegerConformanceTest : public testing::TestWithParam<std::string> {
 protected:
  // Fresh memory is full of what no kernel would write: an element left out shows every time.
  IntegerConformanceTest() { mallopt(M_PERTURB, 0x5a); }
  ~IntegerConformanceTest() override { mallopt(M_PERTURB, 0); }
};

TEST_P(IntegerConformanceTest, EveryCodeGivesTheBytesOfRef) {
  auto backend = MakeIntegerBackend(GetParam());
  auto oracle = MakeBackend("ref", 1);
  ASSERT_TRUE(backend.ok() && oracle.ok()) << backend.status();
  const uint64_t seeds = CaseCountOf(GetParam(), 60);
  for (OpCode code : IntegerCodes()) {
    if (TraitsOf(code).rescales && !(*backend)->traits().rescales_in_products) continue;
    const bool makes_codes =
        code == OpCode::kInt8ProductToCodes || code == OpCode::kRealProductToCodes;
    if (makes_codes && !(*backend)->traits().codes_in_products) continue;
    for (uint64_t number = 1; number <= seeds + NamedCases(code); ++number) {
      const uint64_t seed = number <= seeds ? number : kFirstNamedSeed + number - seeds - 1;
      std::optional<IntegerCase> ours = MakeIntegerCase(code, seed);
      if (!ours.has_value()) ours = MakeCodeCase(code, seed);
      ASSERT_TRUE(ours.has_value()) << "no case for " << std::string(Name(code));
      if (!(*backend)->traits().shifts_slices) ours->split.shifted = false;
      SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << ours->ToString());
      ExpectSameAsRef(*std::move(ours), backend->get(), oracle->get());
      if (HasFailure()) return;
    }
  }
}

TEST_P(IntegerConformanceTest, GradientsOfAnyExponentsAddToTheTotalOfRef) {
  auto backend = MakeIntegerBackend(GetParam());
  auto oracle = MakeBackend("ref", 1);
  ASSERT_TRUE(backend.ok() && oracle.ok()) << backend.status();
  std::vector<int64_t> lengths = {1, 33, 513, 15, 31, 32, 63, 64, 65, 200};
  lengths.resize(CaseCountOf(GetParam(), lengths.size()));
  uint64_t seed = 0;
  for (const DType gradient : {DType::kInt32, DType::kInt64}) {
    for (const int64_t apart : {0, 1, 2, 7, 30, 31, 32, 33, 40, 61, 62, 63, 64, 65, 1000}) {
      for (const int64_t elements : lengths) {
        // The gradient's exponent is the smaller one, then the total's, then nothing is added; and
        // the same with small numbers.
        for (int kind = 0; kind < 6; ++kind) {
          const GradientSumShape shape = {.gradient = gradient,
                                          .elements = elements,
                                          .accumulates = kind % 3 < 2,
                                          .difference = kind % 3 == 1 ? -apart : apart,
                                          .small = kind >= 3};
          SCOPED_TRACE(testing::Message() << std::string(Name(gradient)) << ", " << elements
                                          << " elements, exponents apart by " << shape.difference
                                          << ", kind " << kind);
          ExpectSameAsRef(MakeGradientSumCase(shape, ++seed), backend->get(), oracle->get());
          if (HasFailure()) return;
        }
      }
    }
  }
}

// 2^31 has as many bits as the largest word, and is none.
TEST_P(IntegerConformanceTest, UpdatesFromGradientsAroundTheLargestWordAreThoseOfRef) {
  auto backend = MakeIntegerBackend(GetParam());
  auto oracle = MakeBackend("ref", 1);
  ASSERT_TRUE(backend.ok() && oracle.ok()) << backend.status();
  uint64_t seed = 0;
  for (const Rounding rounding : {Rounding::kPseudoStochastic, Rounding::kHalfAway}) {
    for (const int64_t beyond : {-1, 0, 1}) {
      for (const int64_t elements : {1, 33, 127, 128, 300}) {
        SCOPED_TRACE(testing::Message() << "rounding " << static_cast<int>(rounding)
                                        << ", 2^31 and " << beyond << ", " << elements);
        ExpectSameAsRef(MakeUpdateCase(rounding, (int64_t{1} << 31) + beyond, elements, ++seed),
                        backend->get(), oracle->get());
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(IntegerConformanceTest, PoolsOfQuartersAreThoseOfRef) {
  auto backend = MakeIntegerBackend(GetParam());
  auto oracle = MakeBackend("ref", 1);
  ASSERT_TRUE(backend.ok() && oracle.ok()) << backend.status();
  uint64_t seed = 0;
  for (const int64_t w : {2, 3, 4, 6, 8, 16, 28, 32, 64, 128, 256}) {
    for (const int64_t h : {2, 3, 4, 6}) {
      for (const int64_t channels : {1, 3, 17}) {
        const Shape x = {2, channels, h, w};
        SCOPED_TRACE(testing::Message() << "x " << x.ToString());
        for (const bool keeps_taps : {false, true}) {
          ExpectSameAsRef(MakeQuarterPoolCase(OpCode::kInt8MaxPoolForward, x, keeps_taps, ++seed),
                          backend->get(), oracle->get());
        }
        ExpectSameAsRef(MakeQuarterPoolCase(OpCode::kInt8MaxPoolInputGradient, x, true, ++seed),
                        backend->get(), oracle->get());
        if (HasFailure()) return;
      }
    }
  }
}

std::vector<std::string> ConformingNames() {
  std::vector<std::string> names = IntegerBackendNames();
  for (const std::string& name : ForcedBackendNames()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Backends, IntegerConformanceTest, testing::ValuesIn(ConformingNames()),
                         [](const auto& info) { return TestNameOf(info.param); });

}  // namespace
}  // namespace runnel::integer_conformance_test
