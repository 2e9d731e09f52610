// What codec.h promises, asked of every name in the table.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "compress/codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/number_format.h"
#include "tests/compress/guarded_buffer.h"
#include "tests/compress/test_tensors.h"

namespace runnel {
namespace {

using testing::HasSubstr;
using Payload = std::vector<std::byte>;

constexpr uint64_t kSeed = 314159;
constexpr EncoderKey kKey = {7, RandomPurpose::kCodecBackward, 3};
const Shape kShapes[] = {{1}, {2}, {7}, {8}, {11}, {8, 4, 2, 2}, {5, 3, 7, 9}, {2, 33, 17}};

bool IsStochastic(const std::string& name) { return name.rfind("stochastic", 0) == 0; }
bool IsInt8(const std::string& name) { return name == "int8"; }
bool IsMbq(const std::string& name) { return name.rfind("mbq", 0) == 0; }
bool IsTile(const std::string& name) {
  return name.rfind("tile", 0) == 0 || name.rfind("hadamard", 0) == 0;
}
bool IsFeedback(const std::string& name) { return name.rfind("hadamard_ef", 0) == 0; }
bool IsUniform(const std::string& name) { return name.rfind("uniform", 0) == 0; }
bool IsAmsgrad(const std::string& name) { return name.rfind("amsgrad_mbq", 0) == 0; }
bool Remembers(const std::string& name) {
  return IsMbq(name) || IsFeedback(name) || LearnsFromLoss(name);
}
// Where the first tile of a tile codec's payload begins.
size_t TilesAt(const std::string& name) { return name.rfind("tile", 0) == 0 ? 0 : 8; }
// Of a name that ends in a number of bits.
int Bits(const std::string& name) { return name.back() - '0'; }

class CodecConformance : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    RecordProperty("seed", static_cast<int>(kSeed));
    auto made = MakeCodec(GetParam());
    ASSERT_TRUE(made.ok()) << made.status();
    codec_ = std::move(*made);
  }

  size_t Size(const Shape& shape) const { return codec_->EncodedBytes(shape).value(); }

  Payload Encode(Encoder& encoder, const std::vector<float>& x, const Shape& shape,
                 int64_t sequence, bool restart = false) const {
    Payload payload(Size(shape), std::byte{0xA5});
    const absl::Status status =
        encoder.Encode(ViewOf(x, shape), Sequence(sequence), restart, absl::MakeSpan(payload));
    EXPECT_TRUE(status.ok()) << status;
    return payload;
  }

  absl::Status Decode(absl::Span<const std::byte> payload, const Shape& shape,
                      std::vector<float>* out) const {
    out->assign(shape.elements(), std::numeric_limits<float>::quiet_NaN());
    return codec_->Decode(payload, MutableViewOf(absl::MakeSpan(*out), shape));
  }

  std::vector<float> Decoded(const Payload& payload, const Shape& shape) const {
    std::vector<float> out;
    const absl::Status status = Decode(payload, shape, &out);
    EXPECT_TRUE(status.ok()) << status;
    return out;
  }

  std::unique_ptr<const Codec> codec_;
};

std::vector<float> Input(const Shape& shape, uint64_t seed) {
  return NormalTensor(shape.elements(), kSeed + seed);
}

// Of a tile codec: the step of element e's tile.
double TileStep(const std::string& name, const Payload& payload, size_t e) {
  const size_t tile = TilesAt(name) + e / 256 * (4 + 32 * Bits(name));
  uint32_t step = 0;
  std::memcpy(&step, payload.data() + tile, 4);
  step &= 0xFFFF0000u;
  float value;
  std::memcpy(&value, &step, 4);
  return value;
}

// Of a rotated tile an error spreads: at most 16 steps, or what was clipped, of which all of the
// tile is a bound.
double TileBound(const std::string& name, const Payload& payload, const std::vector<float>& x,
                 size_t e) {
  const double step = TileStep(name, payload, e) * (1 + 1e-3);
  if (TilesAt(name) == 0) return step + 0x1p-90;
  double spread = 0;
  if (IsFeedback(name)) {
    const size_t first = e / 256 * 256;
    const size_t end = std::min(x.size(), first + 256);
    for (size_t i = first; i < end; ++i) spread = std::max(spread, 2.0 * std::abs(x[i]));
  }
  return 16 * (step + spread) + 1e-4 * std::abs(x[e]) + 0x1p-90;
}

float Field(const Payload& payload, int index) {
  float value;
  std::memcpy(&value, payload.data() + 4 * index, 4);
  return value;
}

// One step of an int8 payload.
double Step(const Payload& payload) {
  int32_t exponent;
  std::memcpy(&exponent, payload.data(), 4);
  return std::ldexp(1.0, exponent);
}

// The largest error that a first micro-batch may have: 0, one step of the scale (an int8 value of
// 127.5 steps or more becomes 127), or for mbq the distance to the nearest of the levels that were
// sent.
double ErrorBound(const std::string& name, const Payload& payload, double x) {
  if (name == "identity") return 0;
  if (IsInt8(name)) return std::max(Step(payload), 0x1p-149);
  if (IsStochastic(name)) return Field(payload, 0) * (1 + 1e-5);
  const int k = Bits(name);
  if (IsUniform(name)) {  // half a step within the range, what is clipped beyond it
    const double step = Field(payload, 0), half = 1 << (k - 1);
    const double clipped = std::max({0.0, x - (half - 1) * step, -half * step - x});
    return (clipped + step / 2) * (1 + 1e-6);
  }
  double nearest = std::numeric_limits<double>::infinity();
  for (int code = 0; code < (1 << k); ++code) {
    double level = 0;
    for (int i = 0; i < k; ++i) level += (code >> i) & 1 ? Field(payload, i) : -Field(payload, i);
    nearest = std::min(nearest, std::abs(level - x));
  }
  const double correction = std::abs(static_cast<double>(Field(payload, k)));
  return (nearest + correction) * (1 + 1e-6) + 1e-6 * std::abs(x) + 1e-44;
}

TEST_P(CodecConformance, RoundTripWithinTheBound) {
  for (const Shape& shape : kShapes) {
    for (const NamedTensor& tensor : HardTensors(shape.elements(), kSeed)) {
      SCOPED_TRACE(absl::StrCat(tensor.name, ", ", shape.ToString()));
      // The cap of the scale near the largest float is stochastic_test.cc's business.
      if (IsStochastic(GetParam()) && tensor.name == "huge") continue;
      // Beyond 2^100 tiles are held at it.
      if (IsTile(GetParam()) && tensor.name == "huge") continue;
      const Payload payload = Encode(*codec_->NewEncoder(kKey), tensor.values, shape, 0);
      const std::vector<float> out = Decoded(payload, shape);
      for (size_t e = 0; e < out.size(); ++e) {
        const double x = tensor.values[e];
        if (IsTile(GetParam())) {
          ASSERT_LE(std::abs(out[e] - x), TileBound(GetParam(), payload, tensor.values, e)) << e;
          continue;
        }
        if (IsStochastic(GetParam()) && Field(payload, 0) < 0x1p-140f) break;  // a coarse scale
        ASSERT_LE(std::abs(out[e] - x), ErrorBound(GetParam(), payload, x)) << "element " << e;
      }
    }
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

TEST_P(CodecConformance, WrongArgumentsAreRefused) {
  const Shape shape = {4, 6};
  std::vector<float> x = Input(shape, 3);
  const auto encoder = codec_->NewEncoder(kKey);
  const Payload good = Encode(*encoder, x, shape, 0);
  const auto expect_refused = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  };
  for (size_t size : {size_t{0}, size_t{1}, good.size() - 1, good.size() + 1, 4 * good.size()}) {
    Payload payload(size);
    expect_refused(encoder->Encode(ViewOf(x, shape), Sequence(1), false, absl::MakeSpan(payload)));
    std::vector<float> out;
    expect_refused(Decode(payload, shape, &out));
  }
  Payload payload(good.size());
  TensorView view = ViewOf(x, shape);
  view.dtype = DType::kInt32;
  expect_refused(encoder->Encode(view, Sequence(1), false, absl::MakeSpan(payload)));
  view = ViewOf(x, shape);
  view.bytes.remove_suffix(4);
  expect_refused(encoder->Encode(view, Sequence(1), false, absl::MakeSpan(payload)));
  MutableTensorView out = MutableViewOf(absl::MakeSpan(x), shape);
  out.dtype = DType::kFloat16;
  expect_refused(codec_->Decode(good, out));
  out = MutableViewOf(absl::MakeSpan(x), shape);
  out.bytes.remove_suffix(1);
  expect_refused(codec_->Decode(good, out));
}

TEST_P(CodecConformance, ImpossibleContentsAreRefused) {
  const Shape shape = {3, 7};
  const Payload good = Encode(*codec_->NewEncoder(kKey), Input(shape, 4), shape, 0);
  const int fields = IsMbq(GetParam()) || IsAmsgrad(GetParam()) ? Bits(GetParam()) + 1
                     : IsTile(GetParam())                       ? 0  // half-width fields, below
                                                                : 1;
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  std::vector<float> out;
  for (int field = 0; field < fields; ++field) {
    for (float value : bad) {
      Payload payload = good;
      std::memcpy(payload.data() + 4 * field, &value, 4);
      EXPECT_FALSE(Decode(payload, shape, &out).ok()) << "field " << field << " = " << value;
    }
  }
  if (IsStochastic(GetParam())) {
    for (float scale : {-1.0f, -0.0f, std::numeric_limits<float>::max()}) {
      Payload payload = good;
      std::memcpy(payload.data(), &scale, 4);
      EXPECT_FALSE(Decode(payload, shape, &out).ok()) << "scale " << scale;
    }
  }
  if (IsTile(GetParam())) {
    const size_t at = TilesAt(GetParam());
    for (int field = 0; field < 2; ++field) {
      for (uint16_t value : {0x7F80, 0x7FC1, 0xFF80, 0xFFFF, 0x7F7F, 0xFF7F}) {
        Payload payload = good;
        std::memcpy(payload.data() + at + 2 * field, &value, 2);
        EXPECT_FALSE(Decode(payload, shape, &out).ok()) << field << " = " << value;
      }
    }
    for (uint16_t step : {0x8000, 0xBF80, 0x0001, 0x0080}) {  // -0, -1, below the least
      Payload payload = good;
      std::memcpy(payload.data() + at + 2, &step, 2);
      EXPECT_FALSE(Decode(payload, shape, &out).ok()) << "step " << step;
    }
  }
  if (IsInt8(GetParam())) {
    for (int32_t exponent : {122, -157, std::numeric_limits<int32_t>::min()}) {
      Payload payload = good;
      std::memcpy(payload.data(), &exponent, 4);
      EXPECT_FALSE(Decode(payload, shape, &out).ok()) << "exponent " << exponent;
    }
    for (size_t e = 0; e < 21; ++e) {
      Payload payload = good;
      payload[4 + e] = std::byte{0x80};
      EXPECT_FALSE(Decode(payload, shape, &out).ok()) << "mantissa " << e << " is -128";
    }
  }
  // Bits that stand for no element.
  if (IsMbq(GetParam()) || LearnsFromLoss(GetParam()) || GetParam() == "stochastic:4") {
    Payload payload = good;
    payload.back() |= std::byte{1};
    EXPECT_FALSE(Decode(payload, shape, &out).ok());
  }
}

TEST_P(CodecConformance, NonFiniteInputIsRefusedWithoutATrace) {
  const Shape shape = {2, 33, 17};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (size_t index : {size_t{0}, size_t{100}, size_t{1121}}) {
      for (bool restart : {false, true}) {
        const auto encoder = codec_->NewEncoder(kKey);
        const auto twin = codec_->NewEncoder(kKey);
        Encode(*encoder, Input(shape, 5), shape, 0);
        Encode(*twin, Input(shape, 5), shape, 0);
        std::vector<float> x = Input(shape, 6);
        x[index] = bad;
        Payload payload(Size(shape));
        const absl::Status status =
            encoder->Encode(ViewOf(x, shape), Sequence(1), restart, absl::MakeSpan(payload));
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(" ", index, " ")));
        EXPECT_EQ(encoder->SaveState(), twin->SaveState());
        EXPECT_EQ(Encode(*encoder, Input(shape, 7), shape, 2),
                  Encode(*twin, Input(shape, 7), shape, 2));
      }
    }
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

TEST_P(CodecConformance, ForeignStateIsRefusedWithoutATrace) {
  const Shape shape = {8, 4, 2, 2};
  const auto encoder = codec_->NewEncoder(kKey);
  Encode(*encoder, Input(shape, 40), shape, 0);
  const std::string state = encoder->SaveState();
  std::vector<std::string> foreign = {"x", std::string(12, '\0'), std::string(1000, 'M'),
                                      state + "x"};
  if (!state.empty()) {
    for (size_t cut = 1; cut < state.size(); ++cut) foreign.push_back(state.substr(0, cut));
    for (const std::string& name : CodecNames()) {
      if (name == GetParam() || !Remembers(name)) continue;
      const auto other = MakeCodec(name).value()->NewEncoder(kKey);
      ASSERT_TRUE(other->RestoreState("").ok());
      Payload payload(MakeCodec(name).value()->EncodedBytes(shape).value());
      const std::vector<float> x = Input(shape, 41);
      ASSERT_TRUE(other->Encode(ViewOf(x, shape), Sequence(0), true, absl::MakeSpan(payload)).ok());
      foreign.push_back(other->SaveState());
    }
    // Each of these fields has impossible values: magic, version, width, t or count.
    for (size_t at : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{11}}) {
      foreign.push_back(state);
      foreign.back()[at] = static_cast<char>(0xFF);
    }
    foreign.push_back(state);
    std::fill_n(foreign.back().begin() + 4, 8, '\0');  // t = 0 has no state, nor have 0 elements
    foreign.push_back(state);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(foreign.back().data() + 12, &nan, 4);
  }
  if (IsMbq(GetParam())) {
    foreign.push_back(state);
    foreign.back()[15] = static_cast<char>(0xFF);  // the first alpha's sign
    foreign.push_back(state);
    // The first two alphas out of order.
    std::swap_ranges(foreign.back().begin() + 12, foreign.back().begin() + 16,
                     foreign.back().begin() + 16);
  }
  for (const std::string& bytes : foreign) {
    EXPECT_EQ(encoder->RestoreState(bytes).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(encoder->SaveState(), state);
  }
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
  EXPECT_EQ(same, !Remembers(GetParam()) || IsUniform(GetParam()));
}

TEST_P(CodecConformance, ZerosAndConstantsComeBack) {
  for (const Shape& shape : kShapes) {
    for (float value : {0.0f, 1.0f, -2.5f}) {
      if (IsUniform(GetParam()) && value != 0) continue;  // its range is what was learned
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
  // Two or three bits that are rounded at random leave much.
  EXPECT_LT(error, (IsTile(GetParam()) && Bits(GetParam()) < 4 ? 1.5 : 0.25) * power);
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
  EXPECT_EQ(payloads.size(), IsStochastic(GetParam()) || IsTile(GetParam()) ? 5u : 1u);
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

std::vector<int8_t> Mantissas(const Shape& shape, uint64_t seed) {
  const CounterRandom random(kSeed + seed, RandomPurpose::kTest, 1, 0);
  std::vector<int8_t> mantissas(shape.elements());
  for (size_t e = 0; e < mantissas.size(); ++e)
    mantissas[e] = static_cast<int8_t>(static_cast<int>(random.Below(e, 255)) - 127);
  return mantissas;
}

TensorView ScaledView(const std::vector<int8_t>& mantissas, int32_t exponent, const Shape& shape) {
  return {
      DType::kInt8, shape, Layout::kRowMajor, exponent,
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(mantissas.data()), mantissas.size())};
}

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

TEST_P(CodecConformance, WhatIsNoScaledTensorIsRefused) {
  if (!codec_->takes_scaled()) return;
  const Shape shape = {3, 7};
  const std::vector<int8_t> good = Mantissas(shape, 101);
  const auto encoder = codec_->NewEncoder(kKey);
  Payload payload(Size(shape));
  const auto encode = [&](const std::vector<int8_t>& x, int32_t exponent) {
    return encoder->Encode(ScaledView(x, exponent, shape), Sequence(0), true,
                           absl::MakeSpan(payload));
  };
  EXPECT_FALSE(encode(good, kMaxExponent + 1).ok());
  EXPECT_FALSE(encode(good, -kMaxExponent - 1).ok());
  for (size_t e = 0; e < good.size(); ++e) {
    std::vector<int8_t> bad = good;
    bad[e] = -128;
    const absl::Status status = encode(bad, 0);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("mantissa ", e, " ")));
  }
  ASSERT_TRUE(encode(good, 0).ok());
  Payload out(good.size());
  for (int32_t exponent : {kMaxExponent + 1, -kMaxExponent - 1}) {
    Payload bad = payload;
    std::memcpy(bad.data(), &exponent, 4);
    EXPECT_FALSE(codec_->DecodeScaled(bad, shape, absl::MakeSpan(out)).ok());
  }
  for (size_t e = 0; e < good.size(); ++e) {
    Payload bad = payload;
    bad[4 + e] = std::byte{0x80};
    EXPECT_FALSE(codec_->DecodeScaled(bad, shape, absl::MakeSpan(out)).ok()) << e;
  }
  for (size_t size : {size_t{0}, payload.size() - 1, payload.size() + 1}) {
    EXPECT_FALSE(codec_->DecodeScaled(Payload(size), shape, absl::MakeSpan(out)).ok());
  }
  EXPECT_FALSE(codec_->DecodeScaled(payload, shape, absl::MakeSpan(out).subspan(1)).ok());
}

INSTANTIATE_TEST_SUITE_P(All, CodecConformance, testing::ValuesIn(CodecNames()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace runnel
