#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "central/data/loaders.h"
#include "central/data/memory_datasets.h"
#include "central/data/portable_math.h"

namespace runnel::data {
namespace {

constexpr int kFrames = 49;
constexpr int kCoefficients = 10;
constexpr int kPicture = kFrames * kCoefficients;
constexpr int64_t kTrainSamples = 4800;
constexpr int64_t kTestSamples = 1200;
// CounterRandom's index of each split's samples, apart from those of digits and windows.
constexpr uint64_t kTrainIndex = 4;
constexpr uint64_t kTestIndex = 5;

// A sound by the places of its two formants, 0 the lowest and 1 the highest frequency.
struct Sound {
  double first;
  double second;
};
constexpr std::array<Sound, 4> kSounds = {{{.15, .45}, {.3, .75}, {.45, .6}, {.2, .9}}};

// A word is two different sounds, so that each sound is in as many words first as last.
constexpr int kWords = 12;
struct Word {
  int first;
  int last;
};
constexpr Word WordOf(int label) {
  const int first = label / 3, others = label % 3;
  return {first, others < first ? others : others + 1};
}

// What differs between speakers and recordings.
struct Speaker {
  double pitch;  // moves all formants
  double loudness;
  double channel;  // weight of the microphone's own colour
  double noise;
};

// The cepstrum of one frame: the cosine transform of two peaks, the second one weaker.
void AddSound(const Sound& sound, const Speaker& speaker, double weight, float* frame) {
  for (int k = 1; k < kCoefficients; ++k) {
    const double value = CosTurns(k * (sound.first + speaker.pitch) / 2) +
                         .7 * CosTurns(k * (sound.second + speaker.pitch) / 2);
    frame[k] += static_cast<float>(weight * value);
  }
  frame[0] += static_cast<float>(weight * speaker.loudness);
}

void DrawWord(const Word& word, const CounterRandom& random, float* out) {
  Draws draws(random);
  const Speaker speaker = {draws.Between(-.07, .07), draws.Between(.5, 2), draws.Between(-.6, .6),
                           draws.Between(.5, 1.3)};
  const double length = draws.Between(7, 16);  // frames of the whole word
  const double onset = draws.Between(2, kFrames - 2 - length);
  const double turn = onset + length * draws.Between(.35, .65);  // from one sound to the other
  const double glide = draws.Between(1, 4);                      // frames that this takes
  for (int t = 0; t < kFrames; ++t) {
    float* frame = out + t * kCoefficients;
    std::fill(frame, frame + kCoefficients, 0.0f);
    const double last = std::clamp((t - turn) / glide + .5, 0.0, 1.0);
    if (t >= onset && t < onset + length) {
      AddSound(kSounds[word.first], speaker, 1 - last, frame);
      AddSound(kSounds[word.last], speaker, last, frame);
    }
    for (int k = 0; k < kCoefficients; ++k) {
      frame[k] += static_cast<float>(speaker.channel / (1 + k) + speaker.noise * draws.Noise());
    }
  }
}

std::unique_ptr<Dataset> Draw(int64_t samples, uint64_t seed, uint64_t split) {
  std::vector<float> values(samples * kPicture);
  std::vector<uint8_t> labels(samples);
  for (int64_t i = 0; i < samples; ++i) {
    labels[i] = static_cast<uint8_t>(i % kWords);
    DrawWord(WordOf(labels[i]), CounterRandom(seed, RandomPurpose::kSyntheticData, split, i),
             &values[i * kPicture]);
  }
  return std::make_unique<SignalDataset>(Shape{1, kFrames, kCoefficients}, kWords,
                                         std::move(values), std::move(labels));
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadSyntheticKeywords(absl::string_view, uint64_t seed) {
  return DatasetSplits{Draw(kTrainSamples, seed, kTrainIndex),
                       Draw(kTestSamples, seed, kTestIndex)};
}

}  // namespace runnel::data
