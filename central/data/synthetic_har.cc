#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "central/data/loaders.h"
#include "central/data/memory_datasets.h"
#include "central/data/portable_math.h"

namespace runnel::data {
namespace {

constexpr int kChannels = 9;
constexpr int kLength = 128;
constexpr int kWindow = kChannels * kLength;
constexpr int64_t kTrainSamples = 2400;
constexpr int64_t kTestSamples = 600;
// CounterRandom's index of each split's samples, apart from those of the digits.
constexpr uint64_t kTrainIndex = 2;
constexpr uint64_t kTestIndex = 3;

// The fixed part of a class; all else in a window is random. Lags are in turns of the cadence,
// against the x axis.
struct Motion {
  double cycles_low;  // turns of the cadence in a window
  double cycles_high;
  double y_lag;
  double gyro_lag;
};
constexpr std::array<Motion, 6> kMotions = {{
    {3, 5.5, .25, 0},
    {3, 5.5, -.25, 0},
    {3, 5.5, 0, .5},
    {6.5, 10, .25, 0},
    {6.5, 10, -.25, 0},
    {6.5, 10, 0, .5},
}};

// The gravity vector of a phone that lies anyhow in a pocket: a random direction of length 1, by
// rejection.
std::array<double, 3> RandomDirection(Draws& draws) {
  while (true) {
    const double x = draws.Between(-1, 1);
    const double y = draws.Between(-1, 1);
    const double z = draws.Between(-1, 1);
    const double length2 = x * x + y * y + z * z;
    if (length2 > 1 || length2 < .05) continue;
    const double length = std::sqrt(length2);
    return {x / length, y / length, z / length};
  }
}

void DrawWindow(const Motion& motion, const CounterRandom& random, float* out) {
  Draws draws(random);
  const double cycles = draws.Between(motion.cycles_low, motion.cycles_high);
  const double phase = draws.Between(0, 1);
  const double z_phase = draws.Between(0, 1);
  const double overtone = draws.Between(.1, .4);
  const double noise = draws.Between(.2, .7);
  const std::array<double, 3> gravity = RandomDirection(draws);
  // Lags of body_acc x y z and body_gyro x y z, with a little of everybody's own gait.
  const std::array<double, 6> lags = {
      0, motion.y_lag, z_phase, motion.gyro_lag, motion.gyro_lag + motion.y_lag, z_phase};
  for (int channel = 0; channel < 6; ++channel) {
    const double lag = lags[channel] + draws.Between(-.15, .15);
    const double amplitude = draws.Between(.5, 1.5);
    const double drift = draws.Between(-.5, .5);
    for (int t = 0; t < kLength; ++t) {
      const double time = static_cast<double>(t) / kLength;
      const double turns = cycles * time + phase - lag;
      const double swing = SinTurns(turns) + overtone * SinTurns(2 * turns + z_phase);
      out[channel * kLength + t] =
          static_cast<float>(amplitude * swing + drift * (time - .5) + noise * draws.Noise());
    }
  }
  for (int axis = 0; axis < 3; ++axis) {
    for (int t = 0; t < kLength; ++t) {
      const double body = static_cast<double>(out[axis * kLength + t]);
      out[(6 + axis) * kLength + t] = static_cast<float>(body + gravity[axis]);
    }
  }
}

std::unique_ptr<Dataset> Draw(int64_t samples, uint64_t seed, uint64_t split) {
  std::vector<float> values(samples * kWindow);
  std::vector<uint8_t> labels(samples);
  for (int64_t i = 0; i < samples; ++i) {
    labels[i] = static_cast<uint8_t>(i % kMotions.size());
    DrawWindow(kMotions[labels[i]], CounterRandom(seed, RandomPurpose::kSyntheticData, split, i),
               &values[i * kWindow]);
  }
  return std::make_unique<SignalDataset>(Shape{kChannels, kLength},
                                         static_cast<int64_t>(kMotions.size()), std::move(values),
                                         std::move(labels));
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadSyntheticHar(absl::string_view, uint64_t seed) {
  return DatasetSplits{Draw(kTrainSamples, seed, kTrainIndex),
                       Draw(kTestSamples, seed, kTestIndex)};
}

}  // namespace runnel::data
