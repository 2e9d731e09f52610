// What codec.h promises to refuse, asked of every name in the table.

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compress/codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/model/number_format.h"
#include "tests/conformance/codec_harness.h"

namespace runnel::codec_conformance::codec_refusal_test {
namespace {

using testing::HasSubstr;

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
  const int bits = static_cast<int>(CodecId::Parse(GetParam())->parameter.value_or(0));
  const int fields = CaseOf(GetParam()).fields(bits);
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
    const size_t at = TilesAt(std::string(RowOf(GetParam()).family));
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
  const bool has_planes = IsFamily(GetParam(), "grid") && bits < 8;
  if (IsMbq(GetParam()) || LearnsFromLoss(GetParam()) || has_planes ||
      GetParam() == "stochastic:4") {
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

TEST_P(CodecConformance, ForeignStateIsRefusedWithoutATrace) {
  const Shape shape = {16, 4, 4, 4};
  const auto encoder = codec_->NewEncoder(kKey);
  Encode(*encoder, Input(shape, 40), shape, 0);
  const std::string state = encoder->SaveState();
  std::vector<std::string> foreign = {"x", std::string(12, '\0'), std::string(1000, 'M'),
                                      state + "x"};
  if (!state.empty()) {
    for (size_t cut = 1; cut < state.size(); ++cut) foreign.push_back(state.substr(0, cut));
    for (const std::string& name : ExampleCodecNames()) {
      if (name == GetParam() || !Remembers(name)) continue;
      const auto other = MakeCodec(name).value()->NewEncoder(kKey);
      ASSERT_TRUE(other->RestoreState("").ok());
      Payload payload(MakeCodec(name).value()->EncodedBytes(shape).value());
      const std::vector<float> x = Input(shape, 41);
      ASSERT_TRUE(other->Encode(ViewOf(x, shape), Sequence(0), true, absl::MakeSpan(payload)).ok());
      foreign.push_back(other->SaveState());
      ASSERT_FALSE(foreign.back().empty()) << name;
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

// ---- scaled int8 tensors

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

}  // namespace
}  // namespace runnel::codec_conformance::codec_refusal_test
