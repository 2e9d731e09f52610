// What codec.h promises, asked of every name in the table: what comes back, what is remembered.
// What is refused: codec_refusal_test.cc.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "compress/codec.h"
#include "compress/typical_errors.h"
#include "gtest/gtest.h"
#include "proto/base/model/number_format.h"
#include "tests/compress/guarded_buffer.h"
#include "tests/compress/test_tensors.h"
#include "tests/conformance/codec_harness.h"

namespace runnel::codec_conformance::codec_conformance_test {
namespace {

// One step of an int8 payload.
double Step(const Payload& payload) {
  int32_t exponent;
  std::memcpy(&exponent, payload.data(), 4);
  return std::ldexp(1.0, exponent);
}

TEST_P(CodecConformance, RoundTripWithinTheBound) {
  for (const Shape& shape : kShapes) {
    for (const NamedTensor& tensor : HardTensors(shape.elements(), kSeed)) {
      SCOPED_TRACE(absl::StrCat(tensor.name, ", ", shape.ToString()));
      const Payload payload = Encode(*codec_->NewEncoder(kKey), tensor.values, shape, 0);
      const std::vector<float> out = Decoded(payload, shape);
      const Crossing crossing = {CodecId::Parse(GetParam()).value(), tensor.values, shape, payload};
      const FamilyCase& family = CaseOf(GetParam());
      for (size_t e = 0; e < out.size(); ++e) {
        if (family.sparse && out[e] == 0) continue;
        const double error = std::abs(double{out[e]} - double{tensor.values[e]});
        ASSERT_LE(error, family.bound(crossing, e)) << "element " << e;
      }
    }
  }
}

// What plans weigh bits by. An FP32 tensor that int8 takes is not what it is lossless for.
TEST_P(CodecConformance, LosesOfATypicalTensorWhatTheRowSays) {
  if (IsInt8(GetParam())) return;
  const Shape shape({32, 64, 8, 8});
  const CodecId codec = CodecId::Parse(GetParam()).value();
  for (const Direction direction : kDirections) {
    if (!CheckCodecFits(codec, NumberFormat(), direction).ok()) continue;
    const std::unique_ptr<Encoder> encoder = codec_->NewEncoder({kSeed, PurposeOf(direction)});
    std::vector<float> values;
    Payload payload;
    for (int64_t sequence = 0; sequence < 8; ++sequence) {
      values = TypicalTensor(direction, kSeed, sequence, shape.elements());
      payload = Encode(*encoder, values, shape, sequence, sequence == 0);
      if (!Remembers(GetParam()) || RowOf(GetParam()).feeds_back) break;
    }
    const std::vector<float> out = Decoded(payload, shape);
    double error = 0, power = 0;
    for (size_t e = 0; e < out.size(); ++e) {
      error += (double{out[e]} - values[e]) * (double{out[e]} - values[e]);
      power += double{values[e]} * values[e];
    }
    const double expected = RowOf(GetParam()).ErrorOf(codec, direction);
    // A few values at the range's ends decide where a range is cut.
    EXPECT_NEAR(error / power, expected, CaseOf(GetParam()).spread * expected)
        << (direction == Direction::kForward ? "activations" : "gradients");
  }
}

TEST_P(CodecConformance, WritesAndReadsNothingElse) {
  for (const Shape& shape : kShapes) {
    const size_t n = shape.elements();
    const std::vector<float> values = Input(shape, 1);
    for (Guard guard : {Guard::kAfter, Guard::kBefore}) {
      GuardedBuffer x(4 * n, guard), payload(Size(shape), guard), out(4 * n, guard);
      std::memcpy(x.floats(), values.data(), 4 * n);
      const TensorView view{DType::kFloat32, shape, Layout::kRowMajor, 0, x.bytes()};
      ASSERT_TRUE(codec_->NewEncoder(kKey)->Encode(view, Sequence(0), true, payload.bytes()).ok());
      ASSERT_TRUE(
          codec_
              ->Decode(payload.bytes(), {DType::kFloat32, shape, Layout::kRowMajor, 0, out.bytes()})
              .ok());
      EXPECT_EQ(std::memcmp(x.floats(), values.data(), 4 * n), 0);
    }
  }
}

// Payloads have no alignment on a link.
TEST_P(CodecConformance, PayloadsNeedNoAlignment) {
  const Shape shape = {3, 50, 7};
  const std::vector<float> x = Input(shape, 2);
  const Payload payload = Encode(*codec_->NewEncoder(kKey), x, shape, 0);
  for (size_t offset = 1; offset < 8; ++offset) {
    Payload shifted(payload.size() + offset);
    const auto at = absl::MakeSpan(shifted).subspan(offset);
    ASSERT_TRUE(codec_->NewEncoder(kKey)->Encode(ViewOf(x, shape), Sequence(0), false, at).ok());
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), at.begin()));
    std::vector<float> out;
    ASSERT_TRUE(Decode(at, shape, &out).ok());
    EXPECT_EQ(out, Decoded(payload, shape));
  }
}

TEST_P(CodecConformance, EncodingAndDecodingRepeat) {
  const Shape shape = {5, 3, 7, 9};
  const auto a = codec_->NewEncoder(kKey);
  const auto b = codec_->NewEncoder(kKey);
  for (int64_t sequence = 0; sequence < 6; ++sequence) {
    const std::vector<float> x = Input(shape, 10 + sequence);
    const Payload payload = Encode(*a, x, shape, sequence, sequence == 3);
    EXPECT_EQ(payload, Encode(*b, x, shape, sequence, sequence == 3));
    EXPECT_EQ(Decoded(payload, shape), Decoded(payload, shape));
  }
}

TEST_P(CodecConformance, StateMovesToAnotherEncoder) {
  const Shape shape = {5, 3, 7, 9};
  const auto encoder = codec_->NewEncoder(kKey);
  EXPECT_EQ(encoder->SaveState(), "");
  for (int64_t sequence = 0; sequence < 5; ++sequence) {
    Encode(*encoder, Input(shape, 20 + sequence), shape, sequence);
  }
  const std::string state = encoder->SaveState();
  EXPECT_EQ(state.empty(), !Remembers(GetParam()));
  const auto heir = codec_->NewEncoder(kKey);
  Encode(*heir, Input(shape, 99), shape, 0);  // a past of its own, which must not matter
  ASSERT_TRUE(heir->RestoreState(state).ok());
  EXPECT_EQ(heir->SaveState(), state);
  for (int64_t sequence = 5; sequence < 10; ++sequence) {
    const std::vector<float> x = Input(shape, 20 + sequence);
    EXPECT_EQ(Encode(*encoder, x, shape, sequence), Encode(*heir, x, shape, sequence));
  }
  // No bytes: as new.
  ASSERT_TRUE(heir->RestoreState("").ok());
  EXPECT_EQ(Encode(*heir, Input(shape, 30), shape, 10),
            Encode(*codec_->NewEncoder(kKey), Input(shape, 30), shape, 10));
}

TEST_P(CodecConformance, RestartForgets) {
  if (LearnsFromLoss(GetParam())) return;  // what was learned stays
  const Shape shape = {5, 3, 7, 9};
  const auto encoder = codec_->NewEncoder(kKey);
  for (int64_t sequence = 0; sequence < 3; ++sequence) {
    Encode(*encoder, Input(shape, 50 + sequence), shape, sequence);
  }
  const auto fresh = codec_->NewEncoder(kKey);
  for (int64_t sequence = 3; sequence < 6; ++sequence) {
    const std::vector<float> x = Input(shape, 50 + sequence);
    // A fresh encoder starts anew whether it is told to or not.
    EXPECT_EQ(Encode(*encoder, x, shape, sequence, sequence == 3),
              Encode(*fresh, x, shape, sequence, false));
  }
}

TEST_P(CodecConformance, OnlyAdaptiveCodecsRemember) {
  const Shape shape = {2, 33, 17};
  const auto encoder = codec_->NewEncoder(kKey);
  Encode(*encoder, NormalTensor(shape.elements(), kSeed, 1.3), shape, 0);
  const std::vector<float> x = Input(shape, 60);
  const bool same = Encode(*encoder, x, shape, 1) == Encode(*codec_->NewEncoder(kKey), x, shape, 1);
  // What auto remembers is its choice.
  const bool is_alike = IsUniform(GetParam()) || IsFamily(GetParam(), "auto");
  EXPECT_EQ(same, !Remembers(GetParam()) || is_alike);
}

TEST_P(CodecConformance, ZerosAndConstantsComeBack) {
  for (const Shape& shape : kShapes) {
    for (float value : {0.0f, 1.0f, -1.5f}) {
      if (IsUniform(GetParam()) && value != 0) continue;      // its range is what was learned
      if (CaseOf(GetParam()).sparse && value != 0) continue;  // keeps most of them back
      const auto encoder = codec_->NewEncoder(kKey);
      for (int64_t sequence = 0; sequence < 3; ++sequence) {
        const std::vector<float> x(shape.elements(), value);
        const Payload payload = Encode(*encoder, x, shape, sequence);
        // A power of two is 128 steps, one more than there are.
        const double tolerance = IsInt8(GetParam()) ? Step(payload) : 1e-6;
        for (float out : Decoded(payload, shape)) {
          ASSERT_NEAR(out, value, value == 0 ? 0 : tolerance)
              << shape.ToString() << ", micro-batch " << sequence;
        }
      }
    }
  }
}

// A tensor that made the least squares singular must not spoil the ones after it.
TEST_P(CodecConformance, RecoversFromZeros) {
  if (LearnsFromLoss(GetParam())) return;  // by gradients only
  const Shape shape = {8, 4, 2, 2};
  const auto encoder = codec_->NewEncoder(kKey);
  const std::vector<float> zeros(shape.elements(), 0.0f);
  Encode(*encoder, zeros, shape, 0);
  Encode(*encoder, zeros, shape, 1);
  const std::vector<float> x = Input(shape, 70);
  const std::vector<float> out = Decoded(Encode(*encoder, x, shape, 2), shape);
  double error = 0, power = 0;
  for (size_t e = 0; e < x.size(); ++e) {
    error += (out[e] - x[e]) * (out[e] - x[e]);
    power += x[e] * x[e];
  }
  // Two or three bits that are rounded at random leave much, and so do a few large values.
  EXPECT_LT(error, CaseOf(GetParam()).loss * power);
}

TEST_P(CodecConformance, KeysMatterForRandomCodecsOnly) {
  const Shape shape = {2, 33, 17};
  const std::vector<float> x = Input(shape, 80);
  std::set<Payload> payloads;
  const auto add = [&](const EncoderKey& key, int64_t sequence) {
    payloads.insert(Encode(*codec_->NewEncoder(key), x, shape, sequence));
  };
  add(kKey, 5);
  add(kKey, 6);
  add({kKey.run_seed + 1, kKey.purpose, kKey.boundary}, 5);
  add({kKey.run_seed, RandomPurpose::kCodecForward, kKey.boundary}, 5);
  add({kKey.run_seed, kKey.purpose, kKey.boundary + 1}, 5);
  EXPECT_EQ(payloads.size(), CaseOf(GetParam()).draws ? 5u : 1u);
}

TEST_P(CodecConformance, RandomRoundingIsUnbiased) {
  if (!IsStochastic(GetParam())) return;
  const Shape shape = {64};
  const std::vector<float> g = Input(shape, 90);
  const auto encoder = codec_->NewEncoder(kKey);
  constexpr int kDraws = 4000;
  std::vector<double> sum(g.size(), 0.0);
  double scale = 0;
  for (int64_t sequence = 0; sequence < kDraws; ++sequence) {
    const Payload payload = Encode(*encoder, g, shape, sequence);
    scale = Field(payload, 0);
    const std::vector<float> out = Decoded(payload, shape);
    for (size_t e = 0; e < g.size(); ++e) sum[e] += out[e];
  }
  // A draw's deviation is at most half a step; five standard deviations of the mean.
  const double tolerance = 5 * 0.5 * scale / std::sqrt(kDraws);
  for (size_t e = 0; e < g.size(); ++e) EXPECT_NEAR(sum[e] / kDraws, g[e], tolerance);
}

// ---- scaled int8 tensors

TEST_P(CodecConformance, ScaledTensorsComeBackOrAreRefused) {
  for (const Shape& shape : kShapes) {
    for (int32_t exponent : {0, -7, 5, -400, kMaxExponent, -kMaxExponent}) {
      const std::vector<int8_t> x = Mantissas(shape, 100);
      Payload payload(Size(shape));
      const absl::Status encoded = codec_->NewEncoder(kKey)->Encode(
          ScaledView(x, exponent, shape), Sequence(0), true, absl::MakeSpan(payload));
      Payload out(shape.elements());
      const absl::StatusOr<int32_t> decoded =
          codec_->DecodeScaled(payload, shape, absl::MakeSpan(out));
      if (!codec_->takes_scaled()) {
        EXPECT_EQ(encoded.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_EQ(decoded.status().code(), absl::StatusCode::kUnimplemented);
        continue;
      }
      ASSERT_TRUE(encoded.ok() && decoded.ok()) << encoded << decoded.status();
      EXPECT_EQ(*decoded, exponent);
      EXPECT_EQ(std::memcmp(out.data(), x.data(), x.size()), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodecConformance, testing::ValuesIn(ExampleCodecNames()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](unsigned char c) { return !absl::ascii_isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace runnel::codec_conformance::codec_conformance_test
