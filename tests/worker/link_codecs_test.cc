// Boundary tensors of integer recipes over every codec.

#include "worker/link_codecs.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/quantize.h"
#include "proto/base/random.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 77;
constexpr NumberFormat kInt8 = {DType::kInt8, DType::kInt8};
const Shape kShape = {3, 5, 7};

Plan TwoStages(const std::string& forward, const std::string& backward) {
  Plan plan;
  plan.stages = {{DeviceId(0), 0, 0, 2}, {DeviceId(1), 1, 1, 1}};
  plan.links = {{forward, backward}};
  return plan;
}

std::unique_ptr<LinkCodecs> Make(const std::string& codec, int stage) {
  auto codecs = LinkCodecs::Create(TwoStages(codec, codec), stage, kSeed, kInt8);
  EXPECT_TRUE(codecs.ok()) << codecs.status();
  return *std::move(codecs);
}

absl::Span<const int8_t> MantissasOf(const Payload& tensor) {
  return {reinterpret_cast<const int8_t*>(tensor.bytes().data()),
          static_cast<size_t>(kShape.elements())};
}

int32_t ExponentOf(const Payload& tensor) {
  return TailOf(tensor.bytes().data(), DType::kInt8, kShape).exponent;
}

// A scaled tensor in memory, `largest` at most.
Payload Scaled(BufferPool& pool, int largest, int32_t exponent, uint64_t stream = 0) {
  const CounterRandom random(kSeed, RandomPurpose::kTest, stream, 0);
  Payload tensor = pool.Allocate(static_cast<size_t>(BoundaryBytes(kInt8, kShape)));
  std::memset(tensor.mutable_bytes().data(), 0xEE, tensor.size());
  const auto values = static_cast<uint32_t>(2 * largest + 1);
  for (int64_t e = 0; e < kShape.elements(); ++e) {
    const auto mantissa = static_cast<int>(random.Below(static_cast<uint64_t>(e), values));
    tensor.mutable_bytes()[e] = static_cast<std::byte>(mantissa - largest);
  }
  TailOf(tensor.mutable_bytes().data(), DType::kInt8, kShape) = {.exponent = exponent};
  return tensor;
}

// From one end of the link to the other.
absl::StatusOr<Payload> Cross(const std::string& codec, bool up, const Payload& tensor,
                              BufferPool& pool) {
  const auto sender = Make(codec, up ? 1 : 0);
  const auto receiver = Make(codec, up ? 0 : 1);
  const auto bytes = sender->EncodedBytes(true, up, kShape);
  EXPECT_EQ(bytes, receiver->EncodedBytes(false, up, kShape));
  Payload payload = pool.Allocate(static_cast<size_t>(bytes));
  const absl::Status encoded =
      sender->Encode(up, kShape, tensor.bytes(), Sequence(4), true, payload.mutable_bytes());
  if (!encoded.ok()) return encoded;
  Payload out = pool.Allocate(static_cast<size_t>(receiver->TensorBytes(kShape)));
  std::memset(out.mutable_bytes().data(), 0x77, out.size());
  const absl::Status decoded = receiver->Decode(up, payload.bytes(), kShape, out.mutable_bytes());
  if (!decoded.ok()) return decoded;
  return out;
}

TEST(LinkCodecs, Int8CrossesAsItIs) {
  BufferPool pool;
  for (bool up : {false, true}) {
    for (int32_t exponent : {-300, -7, 0, 200}) {
      const Payload tensor = Scaled(pool, 40, exponent);
      const absl::StatusOr<Payload> out = Cross("int8", up, tensor, pool);
      ASSERT_TRUE(out.ok()) << out.status();
      EXPECT_EQ(MantissasOf(*out), MantissasOf(tensor));
      EXPECT_EQ(ExponentOf(*out), exponent);
      EXPECT_EQ(TailOf(out->bytes().data(), DType::kInt8, kShape).max_abs, 0);
    }
  }
}

// Codec and rounding are those of codec.h and quantize.h, with nothing in between.
TEST(LinkCodecs, OtherCodecsGetTheRealValues) {
  BufferPool pool;
  for (const std::string name : {"mbq:4", "stochastic:8", "stochastic:4"}) {
    const Payload tensor = Scaled(pool, 127, -9);
    const absl::StatusOr<Payload> out = Cross(name, true, tensor, pool);
    ASSERT_TRUE(out.ok()) << out.status();

    std::vector<float> values(static_cast<size_t>(kShape.elements()));
    for (size_t e = 0; e < values.size(); ++e)
      values[e] = static_cast<float>(MantissasOf(tensor)[e]) / 512;
    const auto codec = MakeCodec(name).value();
    std::vector<std::byte> payload(codec->EncodedBytes(kShape).value());
    ASSERT_TRUE(codec->NewEncoder({kSeed, RandomPurpose::kCodecBackward, 0})
                    ->Encode(ViewOf(values, kShape), Sequence(4), true, absl::MakeSpan(payload))
                    .ok());
    ASSERT_TRUE(codec->Decode(payload, MutableViewOf(absl::MakeSpan(values), kShape)).ok());
    std::vector<int8_t> mantissas(values.size());
    const int32_t exponent = Quantize(values, QuantizeRule::kPowerOfTwo, absl::MakeSpan(mantissas));
    EXPECT_EQ(MantissasOf(*out), absl::MakeConstSpan(mantissas)) << name;
    EXPECT_EQ(ExponentOf(*out), exponent) << name;
  }
}

TEST(LinkCodecs, WhatFp32CannotHoldIsRefused) {
  BufferPool pool;
  const absl::StatusOr<Payload> out = Cross("mbq:4", false, Scaled(pool, 127, 122), pool);
  EXPECT_THAT(std::string(out.status().message()), HasSubstr("exponent 122 is beyond FP32"));
  // Far below: zeros.
  const absl::StatusOr<Payload> zeros = Cross("stochastic:8", false, Scaled(pool, 127, -200), pool);
  ASSERT_TRUE(zeros.ok()) << zeros.status();
  for (int8_t mantissa : MantissasOf(*zeros)) EXPECT_EQ(mantissa, 0);
}

TEST(LinkCodecs, IdentityIsNoCodecOfIntegers) {
  const auto codecs = LinkCodecs::Create(TwoStages("identity", "int8"), 0, kSeed, kInt8);
  EXPECT_EQ(codecs.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(codecs.status().message()), HasSubstr("codec int8"));
}

TEST(LinkCodecs, WrongSizesAndContentsAreRefused) {
  BufferPool pool;
  const auto sender = Make("int8", 0);
  const auto receiver = Make("int8", 1);
  const Payload tensor = Scaled(pool, 127, -7);
  Payload payload = pool.Allocate(4 + 105);
  const auto encode = [&](absl::Span<const std::byte> bytes) {
    return sender->Encode(false, kShape, bytes, Sequence(0), true, payload.mutable_bytes());
  };
  EXPECT_FALSE(encode(tensor.bytes().subspan(1)).ok());
  EXPECT_FALSE(encode(tensor.bytes().first(105)).ok());
  ASSERT_TRUE(encode(tensor.bytes()).ok());
  Payload out = pool.Allocate(static_cast<size_t>(receiver->TensorBytes(kShape)));
  const auto decode = [&] {
    return receiver->Decode(false, payload.bytes(), kShape, out.mutable_bytes());
  };
  EXPECT_TRUE(decode().ok());
  EXPECT_FALSE(
      receiver->Decode(false, payload.bytes(), kShape, out.mutable_bytes().first(105)).ok());
  payload.mutable_bytes()[50] = std::byte{0x80};
  EXPECT_FALSE(decode().ok());
}

TEST(LinkCodecs, EvaluationsCrossWithoutLoss) {
  BufferPool pool;
  const auto codecs = Make("mbq:2", 0);
  const Payload tensor = Scaled(pool, 99, -250);
  const absl::StatusOr<Payload> packed = codecs->PackEvaluation(kShape, tensor, pool);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(static_cast<int64_t>(packed->size()), codecs->EvaluationBytes(kShape));
  EXPECT_EQ(codecs->EvaluationBytes(kShape), 4 + 105);
  EXPECT_EQ(codecs->EvaluationBits(), 8);
  EXPECT_EQ(codecs->EvaluationExponent(packed->bytes()), -250);
  const absl::StatusOr<Payload> out = codecs->UnpackEvaluation(kShape, *packed, pool);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(MantissasOf(*out), MantissasOf(tensor));
  EXPECT_EQ(ExponentOf(*out), -250);
  Payload bad = Payload::CopyOf(packed->bytes());
  bad.mutable_bytes()[4] = std::byte{0x80};
  EXPECT_FALSE(codecs->UnpackEvaluation(kShape, bad, pool).ok());
}

TEST(LinkCodecs, HeadersSayBitsAndExponent) {
  BufferPool pool;
  const Payload tensor = Scaled(pool, 127, -33);
  const auto int8 = Make("int8", 0);
  Payload payload = pool.Allocate(4 + 105);
  ASSERT_TRUE(
      int8->Encode(false, kShape, tensor.bytes(), Sequence(0), true, payload.mutable_bytes()).ok());
  EXPECT_EQ(int8->Bits(false), 8);
  EXPECT_EQ(int8->Exponent(false, payload.bytes()), -33);
  const auto mbq = Make("mbq:3", 0);
  EXPECT_EQ(mbq->Bits(false), 3);
  EXPECT_EQ(mbq->Exponent(false, payload.bytes()), 0);
  const auto fp32 = LinkCodecs::Create(TwoStages("identity", "int8"), 0, kSeed).value();
  EXPECT_EQ(fp32->Bits(false), 32);
  EXPECT_EQ(fp32->EvaluationBits(), 32);
  EXPECT_EQ(fp32->EvaluationBytes(kShape), 4 * 105);
}

}  // namespace
}  // namespace runnel
