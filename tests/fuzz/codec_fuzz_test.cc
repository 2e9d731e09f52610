// Decoders and state readers meet bytes that no encoder made. Bounded and repeatable: the seed is
// printed, RUNNEL_FUZZ_SEED chooses another, RUNNEL_FUZZ_FACTOR so many times as many rounds.
// Payloads and outputs end (or begin) at memory that cannot be touched.

#include <cmath>
#include <cstdio>
#include <cstring>

#include "compress/codec.h"
#include "gtest/gtest.h"
#include "tests/compress/guarded_buffer.h"
#include "tests/compress/test_tensors.h"
#include "tests/fuzz/environment.h"

namespace runnel::codec_fuzz_test {
namespace {

// Draws in sequence from one stream.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed, RandomPurpose::kTest, 0, 0) {}
  uint32_t Bits() { return random_.Bits(next_++); }
  uint32_t Below(uint32_t bound) { return random_.Below(next_++, bound); }

 private:
  CounterRandom random_;
  uint64_t next_ = 0;
};

Shape RandomShape(Draws& draws) {
  const auto dim = [&draws] { return static_cast<int64_t>(1 + draws.Below(12)); };
  return draws.Below(2) == 0 ? Shape{dim(), dim(), dim()} : Shape{1 + draws.Below(700)};
}

// A payload to try: bytes of an encoder, flipped here and there, with hard floats in the header, or
// nothing but noise; sometimes of another length.
std::vector<std::byte> RandomPayload(const Codec& codec, const Shape& shape, Draws& draws) {
  std::vector<std::byte> payload(codec.EncodedBytes(shape).value());
  const std::vector<float> x = NormalTensor(shape.elements(), draws.Bits());
  const absl::Status encoded =
      codec.NewEncoder({})->Encode(ViewOf(x, shape), Sequence(0), true, absl::MakeSpan(payload));
  EXPECT_TRUE(encoded.ok()) << encoded;
  const uint32_t kind = draws.Below(4);
  if (kind == 0) {
    for (std::byte& byte : payload) byte = static_cast<std::byte>(draws.Bits());
  }
  if (kind == 1) {
    for (uint32_t i = 0; i <= draws.Below(8); ++i) {
      payload[draws.Below(static_cast<uint32_t>(payload.size()))] ^=
          static_cast<std::byte>(1u << draws.Below(8));
    }
  }
  if (kind == 2) {
    constexpr uint32_t kHard[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0xFF7FFFFF,
                                  0x00000001, 0x80000000, 0x80000001, 0x00000000, 0x7F800001};
    const size_t field = draws.Below(9);
    if (4 * field + 4 <= payload.size()) {
      std::memcpy(payload.data() + 4 * field, &kHard[draws.Below(10)], 4);
    }
  }
  if (draws.Below(8) == 0) payload.resize(draws.Below(2 * payload.size() + 2));
  return payload;
}

TEST(CodecFuzz, DecodersSurviveAnyBytes) {
  const uint64_t seed = fuzz::FromEnvironment("RUNNEL_FUZZ_SEED", 1);
  const uint64_t rounds = 1500 * fuzz::FromEnvironment("RUNNEL_FUZZ_FACTOR", 1);
  std::printf("seed %llu, %llu rounds a codec\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(rounds));
  Draws draws(seed);
  for (const std::string& name : ExampleCodecNames()) {
    const auto codec = MakeCodec(name).value();
    uint64_t accepted = 0, refused = 0;
    for (uint64_t round = 0; round < rounds; ++round) {
      const Shape shape = RandomShape(draws);
      const std::vector<std::byte> bytes = RandomPayload(*codec, shape, draws);
      const Guard guard = round % 2 == 0 ? Guard::kAfter : Guard::kBefore;
      GuardedBuffer payload(bytes.size(), guard), out(4 * shape.elements(), guard);
      std::memcpy(payload.bytes().data(), bytes.data(), bytes.size());
      const absl::Status status = codec->Decode(
          payload.bytes(), {DType::kFloat32, shape, Layout::kRowMajor, 0, out.bytes()});
      ++(status.ok() ? accepted : refused);
      if (!status.ok()) {
        ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << ": " << status;
        continue;
      }
      for (int64_t e = 0; e < shape.elements(); ++e) {
        ASSERT_TRUE(std::isfinite(out.floats()[e]))
            << name << ", seed " << seed << ", round " << round << ", element " << e;
      }
    }
    EXPECT_GT(accepted, rounds / 20) << name;
    EXPECT_GT(refused, rounds / 20) << name;
  }
}

// Decoders with a state: whatever arrives, what is kept stays what an encoder can go on from, and
// after a refusal it is what it was.
TEST(CodecFuzz, DecodersThatKeepSamplesSurviveAnyBytes) {
  const uint64_t seed = fuzz::FromEnvironment("RUNNEL_FUZZ_SEED", 1);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Draws draws(seed + 2);
  const Shape shape = {3, 40};
  int families = 0;
  for (const std::string& name : ExampleCodecNames()) {
    const auto codec = MakeCodec(name).value();
    if (!codec->keeps_samples()) continue;
    ++families;
    const auto encoder = codec->NewEncoder({});
    const auto decoder = codec->NewDecoder();
    std::vector<float> out(120);
    const MutableTensorView view = MutableViewOf(absl::MakeSpan(out), shape);
    for (int round = 0; round < 1000; ++round) {
      const int64_t first = draws.Below(4);
      const std::vector<int64_t> samples = {first, first + 1, first + 2};
      std::vector<std::byte> payload = RandomPayload(*codec, shape, draws);
      if (draws.Below(2) == 0) {
        // As the encoder would go on from here.
        ASSERT_TRUE(encoder->RestoreState(decoder->SaveState()).ok());
        encoder->NameSamples(samples);
        payload.resize(codec->EncodedBytes(shape).value());
        const std::vector<float> x = NormalTensor(120, draws.Bits());
        ASSERT_TRUE(
            encoder->Encode(ViewOf(x, shape), Sequence(round), false, absl::MakeSpan(payload))
                .ok());
        if (draws.Below(2) == 0) payload[draws.Below(12)] ^= std::byte{4};  // a mark
      }
      const std::string before = decoder->SaveState();
      const absl::Status status = decoder->Decode(payload, samples, view);
      if (!status.ok()) {
        ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
        ASSERT_EQ(decoder->SaveState(), before);
        continue;
      }
      for (const float value : out) ASSERT_TRUE(std::isfinite(value)) << name << round;
    }
    std::string state = decoder->SaveState();
    for (int round = 0; round < 1000; ++round) {
      std::string changed = state;
      for (uint32_t i = 0; i <= draws.Below(6); ++i)
        changed[draws.Below(static_cast<uint32_t>(state.size()))] = static_cast<char>(draws.Bits());
      if (draws.Below(4) == 0) changed.resize(draws.Below(static_cast<uint32_t>(state.size())));
      const bool is_state = decoder->RestoreState(changed).ok();
      ASSERT_TRUE(!is_state || decoder->SaveState() == changed);
    }
  }
  EXPECT_GT(families, 0);
}

TEST(CodecFuzz, EncodersSurviveAnyState) {
  const uint64_t seed = fuzz::FromEnvironment("RUNNEL_FUZZ_SEED", 1);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Draws draws(seed + 1);
  const Shape shape = {100};
  const std::vector<float> x = NormalTensor(100, seed);
  for (const std::string& name : ExampleCodecNames()) {
    const auto codec = MakeCodec(name).value();
    std::vector<std::byte> payload(codec->EncodedBytes(shape).value());
    for (int round = 0; round < 1000; ++round) {
      const auto encoder = codec->NewEncoder({});
      const auto encode = [&] {
        return encoder->Encode(ViewOf(x, shape), Sequence(0), false, absl::MakeSpan(payload));
      };
      ASSERT_TRUE(encode().ok());
      std::string state = encoder->SaveState();
      if (state.empty() || draws.Below(4) == 0) state.resize(draws.Below(60));
      for (uint32_t i = 0; i <= draws.Below(6) && !state.empty(); ++i) {
        state[draws.Below(static_cast<uint32_t>(state.size()))] = static_cast<char>(draws.Bits());
      }
      const absl::Status restored = encoder->RestoreState(state);
      if (restored.ok()) {
        EXPECT_EQ(encoder->SaveState(), state);
      }
      ASSERT_TRUE(encode().ok()) << name;
      std::vector<float> out(100);
      ASSERT_TRUE(codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), shape)).ok())
          << name << ", seed " << seed << ", round " << round;
    }
  }
}

}  // namespace
}  // namespace runnel::codec_fuzz_test
