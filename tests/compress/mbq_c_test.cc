// The mended multi-bit quantization: what its levels cover, and which gradients it masks.

#include "compress/mbq/mbq_c.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "compress/mbq/mbq.h"
#include "gtest/gtest.h"
#include "tests/compress/test_tensors.h"

namespace runnel::mbq_c_test {
namespace {

constexpr uint64_t kSeed = 60221;
constexpr EncoderKey kKey = {7, RandomPurpose::kCodecForward, 3, 4};

Shape ShapeOf(const std::vector<float>& x) { return {static_cast<int64_t>(x.size())}; }

std::vector<std::byte> Encoded(const Codec& codec, Encoder& encoder, const std::vector<float>& x,
                               int64_t sequence, bool restart = false) {
  std::vector<std::byte> payload(static_cast<size_t>(codec.EncodedBytes(ShapeOf(x)).value()));
  const absl::Status status =
      encoder.Encode(ViewOf(x, ShapeOf(x)), Sequence(sequence), restart, absl::MakeSpan(payload));
  EXPECT_TRUE(status.ok()) << status;
  return payload;
}

std::vector<float> Decoded(const Codec& codec, const std::vector<std::byte>& payload, size_t n) {
  std::vector<float> out(n);
  const Shape shape = {static_cast<int64_t>(n)};
  EXPECT_TRUE(codec.Decode(payload, MutableViewOf(absl::MakeSpan(out), shape)).ok());
  return out;
}

// The error's energy over that of x.
double RelativeError(const std::vector<float>& x, const std::vector<float>& out) {
  double error = 0, power = 0;
  for (size_t e = 0; e < x.size(); ++e) {
    error += std::pow(static_cast<double>(out[e]) - x[e], 2);
    power += std::pow(static_cast<double>(x[e]), 2);
  }
  return error / power;
}

// One value of `every` is positive, the others are 0: a tensor after ReLU.
std::vector<float> Sparse(size_t n, size_t every, uint64_t seed) {
  std::vector<float> x = NormalTensor(n, seed);
  for (size_t e = 0; e < n; ++e) x[e] = e % every == 0 ? std::exp(x[e]) : 0.0f;
  return x;
}

TEST(MaskedMbq, CoversTensorsAfterReluFromTheStartOn) {
  for (size_t every : {3u, 6u, 40u, 140u}) {
    const std::vector<float> x = Sparse(6400, every, kSeed);
    for (int k : {2, 4, 8}) {
      const auto codec = MakeMaskedMbqCodec(k, BestCodecKernels());
      const auto plain = MakeMbqCodec(k, BestCodecKernels());
      const auto encoder = codec->NewEncoder(kKey);
      const auto other = plain->NewEncoder(kKey);
      const std::vector<float> out = Decoded(*codec, Encoded(*codec, *encoder, x, 0), x.size());
      const double error = RelativeError(x, out);
      EXPECT_LT(error, k == 2 ? 0.25 : k == 4 ? 0.05 : 0.002) << every << ", " << k;
      EXPECT_GT(RelativeError(x, Decoded(*plain, Encoded(*plain, *other, x, 0), x.size())),
                2 * error)
          << every << ", " << k;
      EXPECT_NEAR(out[1], 0, 1e-5);  // zeros stay zeros
    }
  }
}

// Few different values: the least squares of mbq are singular at each micro-batch, and its greedy
// start clips most of the tensor for ever.
TEST(MaskedMbq, NothingIsSingular) {
  for (float low : {0.0f, -0.01f}) {
    const auto codec = MakeMaskedMbqCodec(8, BestCodecKernels());
    const auto plain = MakeMbqCodec(8, BestCodecKernels());
    const auto encoder = codec->NewEncoder(kKey);
    const auto other = plain->NewEncoder(kKey);
    double error = 0, plain_error = 0;
    for (int64_t sequence = 0; sequence < 30; ++sequence) {
      std::vector<float> x = Sparse(6400, 140, kSeed + static_cast<uint64_t>(sequence));
      x[1] = low;
      error = RelativeError(x, Decoded(*codec, Encoded(*codec, *encoder, x, sequence), x.size()));
      plain_error =
          RelativeError(x, Decoded(*plain, Encoded(*plain, *other, x, sequence), x.size()));
    }
    EXPECT_GT(plain_error, 0.8);
    EXPECT_LT(error, 0.1) << low;
  }
}

TEST(MaskedMbq, FollowsRangesThatGrowAndShrink) {
  for (float factor : {1.3f, 0.8f, 1000.0f, 0.001f}) {
    const auto codec = MakeMaskedMbqCodec(4, BestCodecKernels());
    const auto encoder = codec->NewEncoder(kKey);
    std::vector<float> x = Sparse(6400, 4, kSeed);
    for (int64_t sequence = 0; sequence < 60; ++sequence) {
      if (sequence == 5 || (sequence > 5 && sequence < 12 && factor > 0.01f && factor < 100)) {
        for (float& value : x) value *= factor;
      }
      const auto payload = Encoded(*codec, *encoder, x, sequence);
      if (sequence == 59) {
        EXPECT_LT(RelativeError(x, Decoded(*codec, payload, x.size())), 0.1) << factor;
      }
    }
  }
}

// Of tensors that have negative values the mean of what arrives is the mean of what was sent.
TEST(MaskedMbq, KeepsTheMean) {
  const auto codec = MakeMaskedMbqCodec(2, BestCodecKernels());
  const auto encoder = codec->NewEncoder(kKey);
  for (int64_t sequence = 0; sequence < 10; ++sequence) {
    std::vector<float> x = Sparse(6400, 5, kSeed + static_cast<uint64_t>(sequence));
    x[1] = -1;
    const std::vector<float> out = Decoded(*codec, Encoded(*codec, *encoder, x, sequence), 6400);
    double difference = 0;
    for (size_t e = 0; e < x.size(); ++e) difference += static_cast<double>(out[e]) - x[e];
    EXPECT_NEAR(difference / 6400, 0, 1e-5);
  }
}

class Masking : public testing::Test {
 protected:
  // Encodes x twenty times, so that the levels follow it, and then with two values far outside.
  Masking() : codec_(MakeMaskedMbqCodec(3, BestCodecKernels())) {
    encoder_ = codec_->NewEncoder(kKey);
    for (int64_t sequence = 0; sequence < 20; ++sequence) {
      Encoded(*codec_, *encoder_, NormalTensor(kElements, kSeed), sequence);
    }
    x_ = NormalTensor(kElements, kSeed);
    for (float& value : x_) value = std::clamp(value, -1.0f, 1.0f);
    x_[3] = -50;
    x_[1000] = 50;
    Encoded(*codec_, *encoder_, x_, 20);
  }

  // The gradient of value `gradient` everywhere after the mask.
  std::vector<float> Masked(float gradient, int64_t sequence) {
    std::vector<float> values(kElements, gradient);
    EXPECT_TRUE(encoder_->MaskGradient(absl::MakeSpan(values), Sequence(sequence)).ok());
    return values;
  }

  static constexpr size_t kElements = 1001;
  std::unique_ptr<const Codec> codec_;
  std::unique_ptr<Encoder> encoder_;
  std::vector<float> x_;
};

TEST_F(Masking, APushFurtherOutIsZero) {
  ASSERT_TRUE(encoder_->masks());
  const std::vector<float> masked = Masked(-0.5f, 20);  // pushes every value up
  for (size_t e = 0; e < kElements; ++e) EXPECT_EQ(masked[e], e == 1000 ? 0.0f : -0.5f) << e;
}

TEST_F(Masking, APushBackInStays) {
  const std::vector<float> masked = Masked(0.5f, 20);
  for (size_t e = 0; e < kElements; ++e) EXPECT_EQ(masked[e], e == 3 ? 0.0f : 0.5f) << e;
}

TEST_F(Masking, IsThatOfTheMicroBatchItself) {
  for (int64_t sequence = 21; sequence < 24; ++sequence) {
    Encoded(*codec_, *encoder_, NormalTensor(kElements, kSeed), sequence);
  }
  EXPECT_EQ(Masked(-0.5f, 20)[1000], 0.0f);
  EXPECT_EQ(Masked(-0.5f, 22)[1000], -0.5f);
  EXPECT_EQ(Masked(-0.5f, 20)[1000], -0.5f);  // it is gone
}

// Four are in flight at most: an encoder whose gradients nobody gives it keeps no more.
TEST_F(Masking, ForgetsWhatCannotBeInFlight) {
  for (int64_t sequence = 21; sequence < 25; ++sequence) {
    Encoded(*codec_, *encoder_, NormalTensor(kElements, kSeed), sequence);
  }
  EXPECT_EQ(Masked(-0.5f, 20)[1000], -0.5f);
}

TEST_F(Masking, RefusesAnotherSize) {
  std::vector<float> gradient(kElements - 1, 1.0f);
  const absl::Status status = encoder_->MaskGradient(absl::MakeSpan(gradient), Sequence(20));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(MaskedMbq, BrokenStatesAreRefused) {
  const auto codec = MakeMaskedMbqCodec(2, BestCodecKernels());
  const auto encoder = codec->NewEncoder(kKey);
  Encoded(*codec, *encoder, NormalTensor(100, kSeed), 0);
  const std::string state = encoder->SaveState();
  ASSERT_EQ(state.size(), 12u + 2 * sizeof(float));
  std::vector<std::string> broken = {state.substr(1), state + "x", "C"};
  for (size_t at : {0u, 1u, 2u, 3u}) {
    broken.push_back(state);
    broken.back()[at] ^= 2;
  }
  for (size_t field : {0u, 1u}) {
    broken.push_back(state);
    const float nan = std::nanf("");
    std::memcpy(broken.back().data() + 12 + 4 * field, &nan, sizeof(nan));
  }
  broken.push_back(state);  // unsorted
  const float large = 1e30f;
  std::memcpy(broken.back().data() + 12 + 4, &large, sizeof(large));
  broken.push_back(state);  // t = 0
  std::fill_n(broken.back().begin() + 4, 8, '\0');
  for (const std::string& text : broken) {
    EXPECT_EQ(encoder->RestoreState(text).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(encoder->SaveState(), state);
  }
}

}  // namespace
}  // namespace runnel::mbq_c_test
