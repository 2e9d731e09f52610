// Codecs that learn from the loss: their derivatives against differences of the loss, their steps
// against the formulas, and that it does not matter when a gradient arrives.

#include "compress/mbq/learned.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/compress/test_tensors.h"

namespace runnel::learned_test {
namespace {

constexpr uint64_t kSeed = 4242;
const Shape kShape = {7, 31};
using Payload = std::vector<std::byte>;

std::vector<float> Input(uint64_t seed) { return NormalTensor(kShape.elements(), kSeed + seed); }

struct End {
  End(const std::string& name, int64_t in_flight)
      : codec(MakeCodec(name).value()),
        encoder(codec->NewEncoder({kSeed, RandomPurpose::kCodecForward, 1, in_flight})) {}

  Payload Encode(const std::vector<float>& x, int64_t sequence) {
    Payload payload(static_cast<size_t>(codec->EncodedBytes(kShape).value()));
    EXPECT_TRUE(
        encoder->Encode(ViewOf(x, kShape), Sequence(sequence), false, absl::MakeSpan(payload))
            .ok());
    return payload;
  }
  std::vector<float> Decode(const Payload& payload) {
    std::vector<float> out(static_cast<size_t>(kShape.elements()));
    EXPECT_TRUE(codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), kShape)).ok());
    return out;
  }
  void Learn(const std::vector<float>& gradient, int64_t sequence) {
    EXPECT_TRUE(encoder->Learn(ViewOf(gradient, kShape), Sequence(sequence)).ok());
  }

  std::unique_ptr<const Codec> codec;
  std::unique_ptr<Encoder> encoder;
};

float Field(const Payload& payload, int index) {
  float value;
  std::memcpy(&value, payload.data() + 4 * index, 4);
  return value;
}

// One step of s against the derivative of LSQ, element by element in its own words.
TEST(Learned, UniformStepsDownItsGradient) {
  for (int k : {2, 3, 4, 8}) {
    End end(absl::StrCat("uniform:", k), 1);
    const std::vector<float> x = Input(1), gradient = Input(2);
    EXPECT_EQ(Field(end.Encode(x, 0), 0), 0.25f);
    end.Learn(gradient, 0);
    const double low = -std::ldexp(1.0, k - 1), high = -low - 1;
    double sum = 0;
    for (size_t e = 0; e < x.size(); ++e) {
      const double v = x[e] / 0.25;
      const double slope = v <= low ? low : v >= high ? high : std::floor(v + 0.5) - v;
      sum += gradient[e] * slope;
    }
    sum /= std::sqrt(static_cast<double>(x.size()) * -low);
    EXPECT_NEAR(Field(end.Encode(x, 1), 0), std::max(1e-8, 0.25 - 0.01 * sum), 1e-6) << k;
  }
}

// What is decoded is a linear function of the alphas: differences are exact derivatives.
TEST(Learned, AmsgradFollowsItsFormulas) {
  constexpr int kBits = 3;
  End end(absl::StrCat("amsgrad_mbq:", kBits), 1);
  double mean[kBits] = {}, square[kBits] = {}, most[kBits] = {};
  double alpha[kBits];
  for (int64_t t = 0; t < 20; ++t) {
    const std::vector<float> x = Input(t), gradient = Input(100 + t);
    const Payload payload = end.Encode(x, t);
    EXPECT_EQ(Field(payload, kBits), 0.0f);
    for (int i = 0; i < kBits; ++i) {
      if (t > 0) {
        EXPECT_NEAR(Field(payload, i), alpha[i], 1e-6) << "step " << t;
      }
      alpha[i] = Field(payload, i);
      Payload more = payload;
      const float moved = Field(payload, i) + 0.5f;
      std::memcpy(more.data() + 4 * i, &moved, 4);
      const auto before = end.Decode(payload), after = end.Decode(more);
      double derivative = 0;
      for (size_t e = 0; e < x.size(); ++e)
        derivative += gradient[e] * (after[e] - before[e]) / 0.5;
      mean[i] = 0.9 * mean[i] + 0.1 * derivative;
      square[i] = 0.999 * square[i] + 0.001 * derivative * derivative;
      most[i] = std::max(most[i], square[i]);
      alpha[i] -= 0.001 * mean[i] / (std::sqrt(most[i]) + 1e-8);
    }
    end.Learn(gradient, t);
  }
}

// With the gradient of half the squared error the codec gets better, after a first tensor that is
// three times as large as the others.
TEST(Learned, LearnsToReconstruct) {
  for (const std::string name : {"uniform:2", "uniform:4", "amsgrad_mbq:2"}) {
    End end(name, 2);
    const auto error = [&](int64_t sequence) {
      std::vector<float> x = Input(sequence % 5);
      if (sequence == 0) {
        for (float& value : x) value *= 3;
      }
      std::vector<float> gradient = end.Decode(end.Encode(x, sequence));
      double sum = 0;
      for (size_t e = 0; e < x.size(); ++e) {
        gradient[e] -= x[e];
        sum += gradient[e] * gradient[e];
      }
      end.Learn(gradient, sequence);
      return sum;
    };
    double first = 0, last = 0;
    for (int64_t t = 0; t < 400; ++t) {
      const double sum = error(t);
      if (t >= 5 && t < 10) first += sum;
      if (t >= 395) last += sum;
    }
    EXPECT_LT(last, 0.97 * first) << name;
  }
}

// Gradients may come at once or at the last moment, and the encoder may move between.
TEST(Learned, WhenGradientsArriveDoesNotMatter) {
  constexpr int64_t kInFlight = 3;
  for (const std::string name : {"uniform:3", "amsgrad_mbq:4"}) {
    End early(name, kInFlight), late(name, kInFlight);
    Payload last;
    for (int64_t t = 0; t < 12; ++t) {
      if (t >= kInFlight) late.Learn(Input(200 + t - kInFlight), t - kInFlight);
      const Payload payload = early.Encode(Input(t), t);
      EXPECT_EQ(payload, late.Encode(Input(t), t)) << name << ", " << t;
      early.Learn(Input(200 + t), t);
      if (t == 1) last = payload;
      if (t == kInFlight) {
        EXPECT_NE(Field(payload, 0), Field(last, 0)) << name;
      }
    }
    // A barrier: all gradients are there, not all of them count yet.
    for (int64_t t = 12 - kInFlight; t < 12; ++t) late.Learn(Input(200 + t), t);
    EXPECT_EQ(early.encoder->SaveState(), late.encoder->SaveState());
    End heir(name, kInFlight);
    ASSERT_TRUE(heir.encoder->RestoreState(early.encoder->SaveState()).ok());
    for (int64_t t = 12; t < 16; ++t)
      EXPECT_EQ(early.Encode(Input(t), t), heir.Encode(Input(t), t));
  }
}

TEST(Learned, ForeignGradientsAreIgnoredOrRefused) {
  End end("uniform:4", 1);
  end.Encode(Input(0), 0);
  end.Learn(Input(1), 7);  // never encoded
  const std::vector<float> small(3);
  EXPECT_FALSE(end.encoder->Learn(ViewOf(small, {3}), Sequence(0)).ok());
  EXPECT_EQ(Field(end.Encode(Input(2), 1), 0), 0.25f);
}

}  // namespace
}  // namespace runnel::learned_test
