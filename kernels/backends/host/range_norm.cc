#include "kernels/backends/host/range_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/ir/arithmetic/affine_grid.h"
#include "proto/base/random.h"

namespace runnel::host {
namespace {

// (N, C, ...) seen as one list of elements a channel, sample by sample, in chunks.
struct ChannelLists {
  int64_t batch, channels, inner;

  explicit ChannelLists(const Shape& shape)
      : batch(shape[0]), channels(shape[1]), inner(shape.elements() / (shape[0] * shape[1])) {}

  int64_t count() const { return batch * inner; }
  RangeChunks chunks() const { return {count()}; }
  // body(position) of elements begin..end-1 of a channel's list, in turn.
  template <typename Body>
  void Over(int64_t channel, int64_t begin, int64_t end, const Body& body) const {
    for (int64_t i = begin; i < end;) {
      const int64_t sample = i / inner, behind = std::min(end, (sample + 1) * inner);
      const int64_t offset = (sample * channels + channel) * inner - sample * inner;
      for (; i < behind; ++i) body(offset + i);
    }
  }
  template <typename Body>
  void Over(int64_t channel, const Body& body) const {
    Over(channel, 0, count(), body);
  }
};

std::vector<float> OnGrid(const float* x, int64_t count, int bits) {
  std::vector<float> values(static_cast<size_t>(count));
  PutOnRange(x, count, bits, values.data());
  return values;
}

// The first places of a chunk's least and largest value.
struct Extremes {
  int64_t least = 0, largest = 0;
};
Extremes ExtremesOf(const ChannelLists& lists, const std::vector<float>& x, int64_t channel,
                    int64_t chunk) {
  Extremes found = {-1, -1};
  const RangeChunks chunks = lists.chunks();
  lists.Over(channel, chunks.Begin(chunk), chunks.Begin(chunk + 1), [&](int64_t at) {
    if (found.least < 0 || x[at] < x[found.least]) found.least = at;
    if (found.largest < 0 || x[at] > x[found.largest]) found.largest = at;
  });
  return found;
}

void Normalise(const ChannelLists& lists, const std::vector<float>& x, const float* means,
               const std::vector<float>& inverses, const std::vector<float>& scale,
               const std::vector<float>& shift, float* y) {
  for (int64_t c = 0; c < lists.channels; ++c) {
    lists.Over(c,
               [&](int64_t at) { y[at] = (x[at] - means[c]) * inverses[c] * scale[c] + shift[c]; });
  }
}

// dy on a grid of its range, by draws.
std::vector<float> NoisyGrid(const Instruction& instruction, const StepContext& context,
                             const float* dy, int64_t count) {
  ValueRange range;
  for (int64_t i = 0; i < count; ++i) range.Add(dy[i]);
  const AffineGrid grid = AffineGridOf(range.Normal(), instruction.grid.bits);
  const CounterRandom random(context.run_seed, RandomPurpose::kErrorRounding,
                             static_cast<uint64_t>(instruction.layer) * kMaxOpsPerLayer +
                                 static_cast<uint64_t>(instruction.op),
                             static_cast<uint64_t>(context.sequence.value()));
  std::vector<float> values(static_cast<size_t>(count));
  std::array<uint32_t, 4> words = {};
  for (int64_t i = 0; i < count; ++i) {
    if (i % 4 == 0) words = random.Block(static_cast<uint64_t>(i / 4));
    values[i] = NoisyAffineValue(dy[i], AffineNoise(words[i % 4] >> 12), grid);
  }
  return values;
}

}  // namespace

int64_t RangeChunks::chunks() const { return std::clamp<int64_t>(count / 2, 1, kMostRangeChunks); }

double RangeChunks::factor() const {
  const auto number = static_cast<double>(chunks());
  return RangeFactor(static_cast<double>(count) / number) / number;
}

void PutOnRange(const float* x, int64_t count, int bits, float* y) {
  ValueRange range;
  for (int64_t i = 0; i < count; ++i) range.Add(x[i]);
  const AffineGrid grid = AffineGridOf(range.Normal(), bits);
  for (int64_t i = 0; i < count; ++i) y[i] = AffineValue(x[i], grid);
}

float RangeInverse(const Instruction& instruction, float running_var) {
  const double sigma = std::sqrt(std::max(0.0, static_cast<double>(running_var)));
  return static_cast<float>(1 / (sigma + instruction.attributes.epsilon));
}

void FinishRangeStatistics(const Instruction& instruction, const RangeChunks& chunks, double sum,
                           double ranges, int64_t channel, const RangeStatistics& statistics,
                           float* inverse) {
  const double mean = sum / static_cast<double>(chunks.count), sigma = chunks.factor() * ranges;
  statistics.stats[channel] = static_cast<float>(mean);
  *inverse = static_cast<float>(1 / (sigma + instruction.attributes.epsilon));
  float& running_mean = statistics.running_mean[channel];
  float& running_var = statistics.running_var[channel];
  const double rate = instruction.attributes.momentum;
  running_mean = static_cast<float>((1 - rate) * running_mean + rate * mean);
  running_var = static_cast<float>((1 - rate) * running_var + rate * sigma * sigma);
}

double RangeFactor(double size) {
  const double shape = 1 + std::sqrt(std::numbers::pi * std::log(4.0));
  return 0.5 * 0.35 * shape / std::sqrt(2 * std::log(std::max(size, 2.0)));
}

void RangeNormForward(const Instruction& instruction, const Shape& shape, const float* x,
                      const float* scale, const float* shift, const RangeStatistics& statistics,
                      float* y) {
  const ChannelLists lists(shape);
  const int bits = instruction.grid.bits;
  const std::vector<float> values = OnGrid(x, shape.elements(), bits);
  const RangeChunks chunks = lists.chunks();
  std::vector<float> inverses(static_cast<size_t>(lists.channels));
  for (int64_t c = 0; c < lists.channels; ++c) {
    double sum = 0, ranges = 0;
    lists.Over(c, [&](int64_t at) { sum += values[at]; });
    for (int64_t chunk = 0; chunk < chunks.chunks(); ++chunk) {
      const Extremes found = ExtremesOf(lists, values, c, chunk);
      ranges += static_cast<double>(values[found.largest]) - values[found.least];
    }
    FinishRangeStatistics(instruction, chunks, sum, ranges, c, statistics, &inverses[c]);
  }
  inverses = OnGrid(inverses.data(), lists.channels, bits);
  std::copy(inverses.begin(), inverses.end(), statistics.stats + lists.channels);
  Normalise(lists, values, statistics.stats, inverses, OnGrid(scale, lists.channels, bits),
            OnGrid(shift, lists.channels, bits), y);
}

void RangeNormEval(const Instruction& instruction, const Shape& shape, const float* x,
                   const float* scale, const float* shift, const float* running_mean,
                   const float* running_var, float* y) {
  const ChannelLists lists(shape);
  const int bits = instruction.grid.bits;
  std::vector<float> inverses(static_cast<size_t>(lists.channels));
  for (int64_t c = 0; c < lists.channels; ++c)
    inverses[c] = RangeInverse(instruction, running_var[c]);
  Normalise(lists, OnGrid(x, shape.elements(), bits), running_mean,
            OnGrid(inverses.data(), lists.channels, bits), OnGrid(scale, lists.channels, bits),
            OnGrid(shift, lists.channels, bits), y);
}

// With s = 1 / (sigma + epsilon), sigma = factor * (sum of the chunks' ranges):
// dx = s scale (dy - mean dy), and factor * dsigma at each largest value, less that at each least
// one, where dsigma = -s^2 scale sum of dy (x - mean).
void RangeNormInputGradient(const Instruction& instruction, const StepContext& context,
                            const Shape& shape, const float* dy, const float* x, const float* scale,
                            const float* stats, float* dx, float* dscale_dshift) {
  const ChannelLists lists(shape);
  const int bits = instruction.grid.bits;
  const std::vector<float> values = OnGrid(x, shape.elements(), bits);
  const std::vector<float> errors = NoisyGrid(instruction, context, dy, shape.elements());
  const std::vector<float> factors = OnGrid(scale, lists.channels, bits);
  const double factor = lists.chunks().factor();
  for (int64_t c = 0; c < lists.channels; ++c) {
    const double mean = stats[c], inverse = stats[lists.channels + c];
    double sum = 0, product = 0;
    lists.Over(c, [&](int64_t at) {
      sum += errors[at];
      product += errors[at] * (values[at] - mean);
    });
    dscale_dshift[c] = static_cast<float>(product * inverse);
    dscale_dshift[lists.channels + c] = static_cast<float>(sum);
    const double mean_error = sum / static_cast<double>(lists.count());
    lists.Over(c, [&](int64_t at) {
      dx[at] = static_cast<float>(inverse * factors[c] * (errors[at] - mean_error));
    });
    const double at_ends = -factor * inverse * inverse * factors[c] * product;
    for (int64_t chunk = 0; chunk < lists.chunks().chunks(); ++chunk) {
      const Extremes found = ExtremesOf(lists, values, c, chunk);
      dx[found.largest] += static_cast<float>(at_ends);
      dx[found.least] -= static_cast<float>(at_ends);
    }
  }
}

}  // namespace runnel::host
