// Boundary tensors of integer recipes over every codec.

#include "worker/link_codecs.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/base/tensor/quantize.h"
#include "proto/base/training/recipe_family.h"
#include "tests/base/codecs.h"
#include "tests/worker/seeded_links.h"

namespace runnel::link_codecs_test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 77;
const NumberFormat kInt8 = ParseRecipeName("niti")->family->format;
const Shape kShape = {3, 5, 7};

Plan TwoStages(const std::string& forward, const std::string& backward) {
  Plan plan;
  plan.stages = {{{Seat{DeviceId(0)}}, 0, 0, 2}, {{Seat{DeviceId(1)}}, 1, 1, 1}};
  plan.links = {{Codecs(forward), Codecs(backward)}};
  return plan;
}

std::unique_ptr<LinkCodecs> Make(const std::string& codec, int stage) {
  auto codecs = SeededLinks(TwoStages(codec, codec), stage, kSeed, kInt8);
  EXPECT_TRUE(codecs.ok()) << codecs.status();
  return *std::move(codecs);
}

MicroBatch At(int64_t sequence, int64_t epoch, bool first_in_epoch) {
  MicroBatch place;
  place.sequence = Sequence(sequence);
  place.epoch = epoch;
  place.first_in_epoch = first_in_epoch;
  return place;
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
absl::StatusOr<Payload> Cross(const std::string& codec, Direction direction, const Payload& tensor,
                              BufferPool& pool) {
  const auto sender = Make(codec, direction == Direction::kForward ? 0 : 1);
  const auto receiver = Make(codec, direction == Direction::kForward ? 1 : 0);
  const auto bytes = sender->EncodedBytes(direction, At(0, 0, true), kShape);
  EXPECT_EQ(bytes, receiver->MaxReceivedBytes(direction, kShape));
  Payload payload = pool.Allocate(static_cast<size_t>(bytes));
  const auto encoded =
      sender->Encode(direction, At(4, 0, true), kShape, tensor.bytes(), payload.mutable_bytes());
  if (!encoded.ok()) return encoded.status();
  EXPECT_EQ(static_cast<int64_t>(*encoded), bytes);
  Payload out = pool.Allocate(static_cast<size_t>(receiver->TensorBytes(direction, kShape)));
  std::memset(out.mutable_bytes().data(), 0x77, out.size());
  const absl::Status decoded =
      receiver->Decode(direction, At(4, 0, true), payload.bytes(), kShape, out.mutable_bytes());
  if (!decoded.ok()) return decoded;
  return out;
}

TEST(LinkCodecs, Int8CrossesAsItIs) {
  BufferPool pool;
  for (Direction direction : kDirections) {
    for (int32_t exponent : {-300, -7, 0, 200}) {
      const Payload tensor = Scaled(pool, 40, exponent);
      const absl::StatusOr<Payload> out = Cross("int8", direction, tensor, pool);
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
    const absl::StatusOr<Payload> out = Cross(name, Direction::kBackward, tensor, pool);
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

// Activations of two bytes, gradients of four.
TEST(LinkCodecs, FloatsOfOtherTypesCross) {
  const NumberFormat format = {.activation = DType::kFloat16};
  const NumberType& type = TypeOf(DType::kFloat16);
  const auto n = static_cast<size_t>(kShape.elements());
  const CounterRandom random(kSeed, RandomPurpose::kTest, 3, 0);
  std::vector<float> values(n);
  for (size_t e = 0; e < n; ++e) values[e] = random.Uniform(e) - 0.5f;
  std::vector<std::byte> halves(2 * n), out(2 * n);
  type.from_float(values, absl::MakeSpan(halves));
  type.to_float(halves, 0, absl::MakeSpan(values));
  for (const std::string name : {"identity", "stochastic:8"}) {
    SCOPED_TRACE(name);
    const Plan plan = TwoStages(name, name);
    const auto sender = *SeededLinks(plan, 0, kSeed, format);
    const auto receiver = *SeededLinks(plan, 1, kSeed, format);
    EXPECT_EQ(sender->TensorBytes(Direction::kForward, kShape), 2 * n);
    EXPECT_EQ(sender->TensorBytes(Direction::kBackward, kShape), 4 * n);
    const auto codec = MakeCodec(name).value();
    const int64_t bytes = sender->EncodedBytes(Direction::kForward, {}, kShape);
    EXPECT_EQ(bytes, name == "identity" ? 2 * n : codec->EncodedBytes(kShape).value());
    EXPECT_EQ(bytes, receiver->MaxReceivedBytes(Direction::kForward, kShape));
    EXPECT_EQ(receiver->EncodedBytes(Direction::kBackward, {}, kShape),
              codec->EncodedBytes(kShape).value());
    std::vector<std::byte> payload(static_cast<size_t>(bytes));
    ASSERT_TRUE(
        sender->Encode(Direction::kForward, At(4, 0, true), kShape, halves, absl::MakeSpan(payload))
            .ok());
    ASSERT_TRUE(
        receiver->Decode(Direction::kForward, At(4, 0, true), payload, kShape, absl::MakeSpan(out))
            .ok());
    std::vector<std::byte> want = halves;
    if (name != "identity") {
      std::vector<float> decoded(n);
      ASSERT_TRUE(codec->NewEncoder({kSeed, RandomPurpose::kCodecForward, 0})
                      ->Encode(ViewOf(values, kShape), Sequence(4), true, absl::MakeSpan(payload))
                      .ok());
      ASSERT_TRUE(codec->Decode(payload, MutableViewOf(absl::MakeSpan(decoded), kShape)).ok());
      type.from_float(decoded, absl::MakeSpan(want));
    }
    EXPECT_EQ(out, want);
    EXPECT_FALSE(receiver
                     ->Decode(Direction::kForward, At(4, 0, true), halves, kShape,
                              absl::MakeSpan(out).first(n))
                     .ok());
  }
}

TEST(LinkCodecs, WhatFp32CannotHoldIsRefused) {
  BufferPool pool;
  const absl::StatusOr<Payload> out =
      Cross("mbq:4", Direction::kForward, Scaled(pool, 127, 122), pool);
  EXPECT_THAT(std::string(out.status().message()), HasSubstr("exponent 122 is beyond FP32"));
  // Far below: zeros.
  const absl::StatusOr<Payload> zeros =
      Cross("stochastic:8", Direction::kForward, Scaled(pool, 127, -200), pool);
  ASSERT_TRUE(zeros.ok()) << zeros.status();
  for (int8_t mantissa : MantissasOf(*zeros)) EXPECT_EQ(mantissa, 0);
}

TEST(LinkCodecs, IdentityIsNoCodecOfIntegers) {
  const auto codecs = SeededLinks(TwoStages("identity", "int8"), 0, kSeed, kInt8);
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
    return sender->Encode(Direction::kForward, At(0, 0, true), kShape, bytes,
                          payload.mutable_bytes());
  };
  EXPECT_FALSE(encode(tensor.bytes().subspan(1)).ok());
  EXPECT_FALSE(encode(tensor.bytes().first(105)).ok());
  ASSERT_TRUE(encode(tensor.bytes()).ok());
  Payload out =
      pool.Allocate(static_cast<size_t>(receiver->TensorBytes(Direction::kForward, kShape)));
  const auto decode = [&] {
    return receiver->Decode(Direction::kForward, At(0, 0, true), payload.bytes(), kShape,
                            out.mutable_bytes());
  };
  EXPECT_TRUE(decode().ok());
  EXPECT_FALSE(receiver
                   ->Decode(Direction::kForward, At(0, 0, true), payload.bytes(), kShape,
                            out.mutable_bytes().first(105))
                   .ok());
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
  const absl::StatusOr<Payload> out = codecs->UnpackEvaluation(kShape, *packed, pool);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(MantissasOf(*out), MantissasOf(tensor));
  EXPECT_EQ(ExponentOf(*out), -250);
  Payload bad = Payload::CopyOf(packed->bytes());
  bad.mutable_bytes()[4] = std::byte{0x80};
  EXPECT_FALSE(codecs->UnpackEvaluation(kShape, bad, pool).ok());
}

// Two epochs of four micro-batches with mbq:2, then mbq:3 and the other way identity: each payload
// is that of an encoder that was new when its codec began.
constexpr char kForward[] = "0:mbq:2,2:mbq:3";
constexpr char kBackward[] = "0:stochastic:8,1:identity";

std::vector<float> Values(int64_t sequence) {
  const CounterRandom random(kSeed, RandomPurpose::kTest, 9, static_cast<uint64_t>(sequence));
  std::vector<float> values(static_cast<size_t>(kShape.elements()));
  for (size_t e = 0; e < values.size(); ++e) values[e] = static_cast<float>(random.Normal(e));
  return values;
}

MicroBatch Place(int64_t sequence) { return At(sequence, sequence / 4, sequence % 4 == 0); }

std::vector<std::byte> Sent(LinkCodecs& codecs, Direction direction, int64_t sequence) {
  const MicroBatch place = Place(sequence);
  const std::vector<float> values = Values(sequence);
  std::vector<std::byte> payload(
      static_cast<size_t>(codecs.EncodedBytes(direction, place, kShape)));
  const auto sent =
      codecs.Encode(direction, place, kShape,
                    {reinterpret_cast<const std::byte*>(values.data()), 4 * values.size()},
                    absl::MakeSpan(payload));
  EXPECT_TRUE(sent.ok()) << sent.status();
  return payload;
}

TEST(LinkCodecs, ASchedulesCodecsBeginAnewWhereTheyChange) {
  const Plan plan = TwoStages(kForward, kBackward);
  const auto sender = SeededLinks(plan, 0, kSeed).value();
  const auto receiver = SeededLinks(plan, 1, kSeed).value();
  const auto two = MakeCodec("mbq:2").value();
  const auto three = MakeCodec("mbq:3").value();
  EXPECT_EQ(receiver->MaxReceivedBytes(Direction::kForward, kShape),
            three->EncodedBytes(kShape).value());
  std::unique_ptr<Encoder> encoder;
  for (int64_t sequence = 0; sequence < 16; ++sequence) {
    const Codec& codec = sequence < 8 ? *two : *three;
    if (sequence == 0 || sequence == 8) encoder = codec.NewEncoder({});
    std::vector<std::byte> expected(static_cast<size_t>(codec.EncodedBytes(kShape).value()));
    const std::vector<float> values = Values(sequence);
    ASSERT_TRUE(encoder
                    ->Encode(ViewOf(values, kShape), Sequence(sequence), sequence % 4 == 0,
                             absl::MakeSpan(expected))
                    .ok());
    const std::vector<std::byte> payload = Sent(*sender, Direction::kForward, sequence);
    EXPECT_EQ(payload, expected) << sequence;
    std::vector<float> out(values.size()), direct(values.size());
    ASSERT_TRUE(receiver
                    ->Decode(Direction::kForward, Place(sequence), payload, kShape,
                             {reinterpret_cast<std::byte*>(out.data()), 4 * out.size()})
                    .ok());
    ASSERT_TRUE(codec.Decode(payload, MutableViewOf(absl::MakeSpan(direct), kShape)).ok());
    EXPECT_EQ(out, direct);
  }
}

// Every family, also where the encoder has state: what was sent in a dry run leaves no trace in what
// is sent behind it.
TEST(LinkCodecs, ADryRunLeavesNoTrace) {
  for (const char* codec : {"mbq:2", "mbq_c:4", "hadamard_ef:4", "amsgrad_mbq:2", "topk:0.1"}) {
    for (const Direction direction : kDirections) {
      const Plan plan = TwoStages(codec, codec);
      const int sender = direction == Direction::kForward ? 0 : 1;
      const auto with = SeededLinks(plan, sender, kSeed);
      if (!with.ok()) continue;  // of the other direction
      const auto without = SeededLinks(plan, sender, kSeed).value();
      for (int64_t sequence = 0; sequence < 4; ++sequence) {
        ASSERT_TRUE((*with)->BeginDryRun().ok());
        Sent(**with, direction, sequence);
        Sent(**with, direction, sequence + 1);
        (*with)->EndDryRun();
        EXPECT_EQ((*with)->SaveStates(), without->SaveStates()) << codec << sequence;
        EXPECT_EQ(Sent(**with, direction, sequence), Sent(*without, direction, sequence))
            << codec << sequence;
      }
    }
  }
}

TEST(LinkCodecs, ASchedulesStateMovesAtAnyBarrier) {
  const Plan plan = TwoStages(kForward, kBackward);
  for (Direction direction : kDirections) {
    const int sender = direction == Direction::kForward ? 0 : 1;
    for (int64_t barrier = 0; barrier < 14; ++barrier) {
      const auto first = SeededLinks(plan, sender, kSeed).value();
      const auto second = SeededLinks(plan, sender, kSeed).value();
      for (int64_t sequence = 0; sequence < barrier; ++sequence) Sent(*first, direction, sequence);
      const std::vector<EncoderState> states = first->SaveStates();
      ASSERT_EQ(states.size(), 1u);
      EXPECT_EQ(states[0].direction, direction);
      Sent(*second, direction, 0);  // a past of its own, which must not matter
      ASSERT_TRUE(second->RestoreStates(states).ok());
      for (int64_t sequence = barrier; sequence < 16; ++sequence)
        EXPECT_EQ(Sent(*first, direction, sequence), Sent(*second, direction, sequence))
            << sequence;
    }
  }
}

TEST(LinkCodecs, UnknownCodecsAreRefused) {
  for (const char* text : {"zip", "mbq:9", "0:mbq:2,5:zip"}) {
    EXPECT_EQ(SeededLinks(TwoStages(text, "identity"), 0, kSeed).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

// The sender's encoder masks what comes back of a micro-batch that it clipped.
TEST(LinkCodecs, ClippedActivationsTakeNoPushFurtherOut) {
  auto sender = SeededLinks(TwoStages("mbq_c:2", "identity"), 0, kSeed);
  ASSERT_TRUE(sender.ok()) << sender.status();
  std::vector<float> x(static_cast<size_t>(kShape.elements()), 0.0f);
  for (size_t e = 0; e < x.size(); ++e) x[e] = static_cast<float>(e % 7);
  std::vector<std::byte> payload(
      static_cast<size_t>((*sender)->EncodedBytes(Direction::kForward, {}, kShape)));
  const auto bytes_of = [](std::vector<float>& values) {
    return absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), 4 * values.size());
  };
  for (int64_t sequence = 0; sequence < 30; ++sequence) {
    if (sequence == 29) x[17] = 40;
    const auto encoded = (*sender)->Encode(Direction::kForward, At(sequence, 0, false), kShape,
                                           bytes_of(x), absl::MakeSpan(payload));
    ASSERT_TRUE(encoded.ok()) << encoded.status();
  }
  std::vector<float> returned(x.size(), -1.0f), gradient(x.size());
  const absl::Status decoded = (*sender)->Decode(Direction::kBackward, At(29, 0, false),
                                                 bytes_of(returned), kShape, bytes_of(gradient));
  ASSERT_TRUE(decoded.ok()) << decoded;
  for (size_t e = 0; e < x.size(); ++e) EXPECT_EQ(gradient[e], e == 17 ? 0.0f : -1.0f) << e;
}

}  // namespace
}  // namespace runnel::link_codecs_test
