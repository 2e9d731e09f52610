// aqsgd beside a reference that does what the paper says, sample by sample.

#include "compress/aqsgd.h"

#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "compress/sample_memory.h"
#include "compress/typical_errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_tensors.h"

namespace runnel::aqsgd_test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSeed = 27;
constexpr EncoderKey kKey = {kSeed, RandomPurpose::kCodecForward, 3};
const Shape kShape = {4, 6, 50};
constexpr size_t kElements = 300;  // of a sample
constexpr int64_t kSamples = 12;   // of the data set

using Payload = std::vector<std::byte>;

std::unique_ptr<const Codec> Made(int bits) { return MakeAqsgdCodec(bits, BestCodecKernels()); }

// Activations of samples, which settle as epochs pass.
std::vector<float> Activations(const std::vector<int64_t>& samples, int64_t epoch) {
  std::vector<float> x;
  for (const int64_t sample : samples) {
    const std::vector<float> settled = NormalTensor(kElements, kSeed + sample);
    const std::vector<float> change = NormalTensor(kElements, kSeed + 1000 * (epoch + 1) + sample);
    for (size_t e = 0; e < kElements; ++e)
      x.push_back(settled[e] + change[e] / static_cast<float>(1 << epoch));
  }
  return x;
}

// Three micro-batches an epoch.
std::vector<int64_t> SamplesAt(int64_t sequence) {
  std::vector<int64_t> samples;
  const int64_t epoch = sequence / 3;
  for (int64_t i = 0; i < 4; ++i)
    samples.push_back((5 * (4 * (sequence % 3) + i) + epoch) % kSamples);
  return samples;
}

Payload Encoded(Encoder& encoder, const Codec& codec, int64_t sequence) {
  const std::vector<int64_t> samples = SamplesAt(sequence);
  const std::vector<float> x = Activations(samples, sequence / 3);
  Payload payload(codec.EncodedBytes(kShape).value());
  encoder.NameSamples(samples);
  EXPECT_TRUE(
      encoder
          .Encode(ViewOf(x, kShape), Sequence(sequence), sequence % 3 == 0, absl::MakeSpan(payload))
          .ok());
  return payload;
}

std::vector<float> Decoded(Decoder& decoder, const Payload& payload, int64_t sequence) {
  std::vector<float> out(kShape.elements());
  const absl::Status status =
      decoder.Decode(payload, SamplesAt(sequence), MutableViewOf(absl::MakeSpan(out), kShape));
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

float AsBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u);
}

TEST(Aqsgd, IsTheReference) {
  for (const int bits : {2, 4, 8}) {
    const auto codec = Made(bits);
    const auto encoder = codec->NewEncoder(kKey);
    const auto decoder = codec->NewDecoder();
    const auto plain = MakeCodec(absl::StrCat("hadamard:", bits)).value();
    const auto plain_encoder = plain->NewEncoder(kKey);
    std::map<int64_t, std::vector<float>> memory;
    for (int64_t sequence = 0; sequence < 15; ++sequence) {
      const std::vector<int64_t> samples = SamplesAt(sequence);
      std::vector<float> difference = Activations(samples, sequence / 3);
      for (size_t e = 0; e < difference.size(); ++e) {
        std::vector<float>& kept = memory[samples[e / kElements]];
        kept.resize(kElements);
        difference[e] -= kept[e % kElements];
      }
      Payload coded(plain->EncodedBytes(kShape).value());
      ASSERT_TRUE(
          plain_encoder
              ->Encode(ViewOf(difference, kShape), Sequence(sequence), false, absl::MakeSpan(coded))
              .ok());
      std::vector<float> expected(kShape.elements());
      ASSERT_TRUE(plain->Decode(coded, MutableViewOf(absl::MakeSpan(expected), kShape)).ok());
      for (size_t e = 0; e < expected.size(); ++e) {
        float& kept = memory[samples[e / kElements]][e % kElements];
        expected[e] += kept;
        kept = AsBFloat16(expected[e]);
      }
      EXPECT_EQ(Decoded(*decoder, Encoded(*encoder, *codec, sequence), sequence), expected)
          << bits << " bits, micro-batch " << sequence;
    }
  }
}

// Two bits are enough once activations settle: eden's two bits lose as much in every epoch.
TEST(Aqsgd, LosesLessInEachEpoch) {
  const auto codec = Made(2);
  const auto encoder = codec->NewEncoder(kKey);
  const auto decoder = codec->NewDecoder();
  double before = 1;
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    double error = 0, power = 0;
    for (int64_t sequence = 3 * epoch; sequence < 3 * epoch + 3; ++sequence) {
      const std::vector<float> x = Activations(SamplesAt(sequence), epoch);
      const std::vector<float> out =
          Decoded(*decoder, Encoded(*encoder, *codec, sequence), sequence);
      for (size_t e = 0; e < x.size(); ++e) {
        error += (double{out[e]} - x[e]) * (double{out[e]} - x[e]);
        power += double{x[e]} * x[e];
      }
    }
    // From the second epoch on activations change less and less.
    if (epoch > 1) {
      EXPECT_LT(error / power, 0.6 * before) << "epoch " << epoch;
    }
    before = error / power;
  }
  EXPECT_LT(before, 0.015 * HadamardError(Direction::kForward, 2));
}

// At a barrier both ends have the same bytes, and any end goes on from them, with other bits too.
TEST(Aqsgd, BothEndsHaveOneState) {
  const auto codec = Made(3);
  const auto encoder = codec->NewEncoder(kKey);
  const auto decoder = codec->NewDecoder();
  for (int64_t sequence = 0; sequence < 7; ++sequence)
    Decoded(*decoder, Encoded(*encoder, *codec, sequence), sequence);
  const std::string state = encoder->SaveState();
  EXPECT_EQ(state, decoder->SaveState());
  EXPECT_EQ(state.size(), 4 + kSamples * (8 + 2 * kElements));
  const auto heir = codec->NewEncoder(kKey);
  const auto receiver = codec->NewDecoder();
  ASSERT_TRUE(heir->RestoreState(state).ok());
  ASSERT_TRUE(receiver->RestoreState(state).ok());
  const auto other = Made(5);
  const auto finer = other->NewEncoder(kKey);
  const auto finer_receiver = other->NewDecoder();
  ASSERT_TRUE(finer->RestoreState(state).ok());
  ASSERT_TRUE(finer_receiver->RestoreState(state).ok());
  for (int64_t sequence = 7; sequence < 12; ++sequence) {
    const Payload payload = Encoded(*heir, *codec, sequence);
    EXPECT_EQ(payload, Encoded(*encoder, *codec, sequence));
    EXPECT_EQ(Decoded(*receiver, payload, sequence), Decoded(*decoder, payload, sequence));
    Decoded(*finer_receiver, Encoded(*finer, *other, sequence), sequence);
  }
  EXPECT_EQ(heir->SaveState(), receiver->SaveState());
  EXPECT_EQ(finer->SaveState(), finer_receiver->SaveState());
  EXPECT_NE(finer->SaveState(), heir->SaveState());
}

// What is kept differs: an error, never other numbers than the sender meant.
TEST(Aqsgd, ADifferenceToSomethingElseIsRefused) {
  const auto codec = Made(2);
  const auto encoder = codec->NewEncoder(kKey);
  const auto decoder = codec->NewDecoder();
  for (int64_t sequence = 0; sequence < 3; ++sequence)
    Decoded(*decoder, Encoded(*encoder, *codec, sequence), sequence);
  const std::string before = decoder->SaveState();
  const Payload payload = Encoded(*encoder, *codec, 3);
  std::vector<float> out(kShape.elements());
  const MutableTensorView view = MutableViewOf(absl::MakeSpan(out), kShape);
  const auto refusal = [&](Decoder& by, const Payload& bytes) {
    return std::string(by.Decode(bytes, SamplesAt(3), view).message());
  };
  const auto fresh = codec->NewDecoder();
  EXPECT_THAT(refusal(*fresh, payload),
              HasSubstr("aqsgd:2: sample 1 is a difference to something else"));
  Payload changed = payload;
  changed[5] ^= std::byte{1};
  EXPECT_THAT(refusal(*decoder, changed), HasSubstr("sample 6 is a difference"));
  EXPECT_EQ(decoder->SaveState(), before);
  EXPECT_THAT(std::string(codec->Decode(payload, view).message()), HasSubstr("row 0 is a differe"));
  const std::vector<int64_t> few = {1, 2};
  EXPECT_THAT(std::string(decoder->Decode(payload, few, view).message()),
              HasSubstr("2 samples are named"));
  // A sender that begins anew is followed.
  const auto anew = codec->NewEncoder(kKey);
  const Payload first = Encoded(*anew, *codec, 3);
  EXPECT_EQ(Decoded(*decoder, first, 3), Decoded(*fresh, first, 3));
}

TEST(Aqsgd, SaysWhatItTakes) {
  const auto codec = Made(2);
  EXPECT_TRUE(codec->keeps_samples());
  EXPECT_EQ(codec->EncodedBytes(kShape).value(),
            4 * 4 + MakeCodec("hadamard:2").value()->EncodedBytes(kShape).value());
  EXPECT_GE(codec->KeptBytes(kShape, kSamples).value(), kSamples * 2 * 300);
  EXPECT_LE(codec->KeptBytes(kShape, kSamples).value(), kSamples * 3 * 300);
}

// Plans add up what the links of a stage keep, times copies of its state.
TEST(SampleMemory, ItsBytesCanBeAddedUp) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const auto& [samples, elements] : {std::pair{kMost, int64_t{1}},
                                          {int64_t{1}, kMost},
                                          {kMost, kMost},
                                          {int64_t{1} << 40, int64_t{1} << 40}}) {
    const int64_t bytes = SampleMemory::Bytes(samples, elements);
    EXPECT_EQ(bytes, SampleMemory::kMostBytes);
    EXPECT_LT(bytes, kMost / 5 / 64) << "five copies of 64 links";
  }
  EXPECT_EQ(SampleMemory::Bytes(3, 100), 3 * SampleMemory::Bytes(1, 100));
  EXPECT_EQ(SampleMemory::Bytes(0, 100), 0);
}

// So that copies of a state can be sent as what has changed.
TEST(SampleMemory, RowsStayWhereTheyAre) {
  SampleMemory memory;
  std::vector<float> values = {1, -2.5f, 3};
  memory.AddTo(7, absl::MakeSpan(values));
  memory.AddTo(2, absl::MakeSpan(values));
  const std::string two = memory.Save();
  memory.AddTo(4, absl::MakeSpan(values));
  EXPECT_EQ(memory.Save().substr(0, two.size()), two);

  SampleMemory other;
  ASSERT_TRUE(other.Restore("aqsgd:2", memory.Save()).ok());
  for (SampleMemory* one : {&memory, &other}) {
    std::vector<float> more = {5, 5, 5};
    one->Forget(2);
    EXPECT_EQ(one->MarkOf(2, 3), SampleMemory::kNothing);
    one->AddTo(2, absl::MakeSpan(more));
    EXPECT_EQ(more[0], 5);
    one->AddTo(9, absl::MakeSpan(more));
  }
  const std::string four = memory.Save();
  EXPECT_EQ(other.Save(), four);
  EXPECT_EQ(four.size(), 2 * two.size() - 4);
  const size_t row = (two.size() - 4) / 2;
  EXPECT_EQ(four.substr(0, 4 + row), two.substr(0, 4 + row));
  EXPECT_EQ(four.substr(4 + row, 8), two.substr(4 + row, 8)) << "sample 2 is where it was";
}

TEST(SampleMemory, RefusesWhatSaveDidNotGive) {
  SampleMemory memory;
  std::vector<float> values = {1, -2.5f, 3};
  memory.AddTo(7, absl::MakeSpan(values));
  memory.AddTo(2, absl::MakeSpan(values));
  const std::string state = memory.Save();
  SampleMemory other;
  ASSERT_TRUE(other.Restore("aqsgd:2", state).ok());
  EXPECT_EQ(other.Save(), state);
  for (size_t bytes = 1; bytes < state.size(); ++bytes) {
    const bool is_whole = bytes == 4 + 8 + 2 * 3;  // one sample
    EXPECT_EQ(other.Restore("aqsgd:2", state.substr(0, bytes)).ok(), is_whole) << bytes;
  }
  ASSERT_TRUE(other.Restore("aqsgd:2", state).ok());
  std::string bad = state;
  bad[4] = 2;  // sample 2 twice
  EXPECT_THAT(std::string(other.Restore("aqsgd:2", bad).message()),
              HasSubstr("aqsgd:2: not a state of this encoder"));
  bad = state;
  bad[12] = '\xff';
  bad[13] = '\x7f';  // no number
  EXPECT_FALSE(other.Restore("aqsgd:2", bad).ok());
  EXPECT_EQ(other.Save(), state);
}

}  // namespace
}  // namespace runnel::aqsgd_test
