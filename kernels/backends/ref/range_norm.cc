// Batch norm by ranges (the kRangeNorm codes of kernels/ir/op_traits.inc) in plain loops.

#include "kernels/backends/host/range_norm.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/backends/ref/channels.h"
#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/affine_grid.h"
#include "proto/base/random.h"

namespace runnel::ref {
namespace {

// (N, C, ...) seen as one list of elements a channel, sample by sample, in chunks.
struct ChannelLists : Channels {
  using Channels::Channels;

  int64_t elements() const { return batch * inner; }
  host::RangeChunks chunks() const { return {elements()}; }
  // body(position) of elements begin..end-1 of a channel's list, in turn.
  template <typename Body>
  void Over(int64_t channel, int64_t begin, int64_t end, const Body& body) const {
    for (int64_t i = begin; i < end;) {
      const int64_t sample = i / inner, behind = std::min(end, (sample + 1) * inner);
      const int64_t offset = (sample * channels + channel) * inner - sample * inner;
      for (; i < behind; ++i) body(offset + i);
    }
  }
};

std::vector<float> OnGrid(const float* x, int64_t count, int bits) {
  std::vector<float> values(static_cast<size_t>(count));
  host::PutOnRange(x, count, bits, values.data());
  return values;
}

// The first places of a chunk's least and largest value.
struct Extremes {
  int64_t least = 0, largest = 0;
};
Extremes ExtremesOf(const ChannelLists& lists, const std::vector<float>& x, int64_t channel,
                    int64_t chunk) {
  Extremes found = {-1, -1};
  const host::RangeChunks chunks = lists.chunks();
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
    lists.ForEach(
        c, [&](int64_t at) { y[at] = (x[at] - means[c]) * inverses[c] * scale[c] + shift[c]; });
  }
}

// dy on a grid of its range, by draws.
std::vector<float> NoisyGrid(const Call& call, const float* dy, int64_t count) {
  ValueRange range;
  for (int64_t i = 0; i < count; ++i) range.Add(dy[i]);
  const AffineGrid grid = AffineGridOf(range.Normal(), call.grid().bits);
  const CounterRandom random(call.context.run_seed, RandomPurpose::kErrorRounding,
                             static_cast<uint64_t>(call.instruction().layer) * kMaxOpsPerLayer +
                                 static_cast<uint64_t>(call.instruction().op),
                             static_cast<uint64_t>(call.context.sequence.value()));
  std::vector<float> values(static_cast<size_t>(count));
  std::array<uint32_t, 4> words = {};
  for (int64_t i = 0; i < count; ++i) {
    if (i % 4 == 0) words = random.Block(static_cast<uint64_t>(i / 4));
    values[i] = NoisyAffineValue(dy[i], AffineNoise(words[i % 4] >> 12), grid);
  }
  return values;
}

}  // namespace

absl::Status RangeNormForward(const Call& call) {
  const ChannelLists lists(call.in_shape(0));
  const int bits = call.grid().bits;
  const host::RangeStatistics statistics = {call.out(1), call.out(2), call.out(3)};
  const std::vector<float> values = OnGrid(call.in(0), call.in_shape(0).elements(), bits);
  const host::RangeChunks chunks = lists.chunks();
  std::vector<float> inverses(static_cast<size_t>(lists.channels));
  for (int64_t c = 0; c < lists.channels; ++c) {
    double sum = 0, ranges = 0;
    lists.ForEach(c, [&](int64_t at) { sum += values[at]; });
    for (int64_t chunk = 0; chunk < chunks.chunks(); ++chunk) {
      const Extremes found = ExtremesOf(lists, values, c, chunk);
      ranges += static_cast<double>(values[found.largest]) - values[found.least];
    }
    host::FinishRangeStatistics(call.instruction(), chunks, sum, ranges, c, statistics,
                                &inverses[c]);
  }
  inverses = OnGrid(inverses.data(), lists.channels, bits);
  std::copy(inverses.begin(), inverses.end(), statistics.stats + lists.channels);
  Normalise(lists, values, statistics.stats, inverses, OnGrid(call.in(1), lists.channels, bits),
            OnGrid(call.in(2), lists.channels, bits), call.out(0));
  return absl::OkStatus();
}

absl::Status RangeNormEval(const Call& call) {
  const ChannelLists lists(call.in_shape(0));
  const int bits = call.grid().bits;
  std::vector<float> inverses(static_cast<size_t>(lists.channels));
  for (int64_t c = 0; c < lists.channels; ++c)
    inverses[c] = host::RangeInverse(call.instruction(), call.in(4)[c]);
  Normalise(lists, OnGrid(call.in(0), call.in_shape(0).elements(), bits), call.in(3),
            OnGrid(inverses.data(), lists.channels, bits), OnGrid(call.in(1), lists.channels, bits),
            OnGrid(call.in(2), lists.channels, bits), call.out(0));
  return absl::OkStatus();
}

// With s = 1 / (sigma + epsilon), sigma = factor * (sum of the chunks' ranges):
// dx = s scale (dy - mean dy), and factor * dsigma at each largest value, less that at each least
// one, where dsigma = -s^2 scale sum of dy (x - mean).
absl::Status RangeNormInputGradient(const Call& call) {
  const ChannelLists lists(call.in_shape(0));
  const int bits = call.grid().bits;
  const int64_t count = call.in_shape(0).elements();
  const std::vector<float> values = OnGrid(call.in(1), count, bits);
  const std::vector<float> errors = NoisyGrid(call, call.in(0), count);
  const std::vector<float> factors = OnGrid(call.in(2), lists.channels, bits);
  const float* stats = call.in(3);
  float *dx = call.out(0), *dscale_dshift = call.out(1);
  const double factor = lists.chunks().factor();
  for (int64_t c = 0; c < lists.channels; ++c) {
    const double mean = stats[c], inverse = stats[lists.channels + c];
    double sum = 0, product = 0;
    lists.ForEach(c, [&](int64_t at) {
      sum += errors[at];
      product += errors[at] * (values[at] - mean);
    });
    dscale_dshift[c] = static_cast<float>(product * inverse);
    dscale_dshift[lists.channels + c] = static_cast<float>(sum);
    const double mean_error = sum / lists.count();
    lists.ForEach(c, [&](int64_t at) {
      dx[at] = static_cast<float>(inverse * factors[c] * (errors[at] - mean_error));
    });
    const double at_ends = -factor * inverse * inverse * factors[c] * product;
    for (int64_t chunk = 0; chunk < lists.chunks().chunks(); ++chunk) {
      const Extremes found = ExtremesOf(lists, values, c, chunk);
      dx[found.largest] += static_cast<float>(at_ends);
      dx[found.least] -= static_cast<float>(at_ends);
    }
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
