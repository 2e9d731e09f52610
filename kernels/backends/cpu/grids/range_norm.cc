// Batch norm by ranges, byte for byte as kernels/backends/ref/range_norm.cc has it. Channels lie
// beside one another: each lane of a vector adds up its own channel's list in the order of a plain
// loop.

#include "kernels/backends/host/range_norm.h"

#include <algorithm>

#include "kernels/backends/cpu/fp32/error_draws.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/backends/cpu/grids/norm_image.h"

namespace runnel::cpu {
namespace {

host::RangeChunks ChunksOf(const NormImage& image) { return {image.rows}; }

AffineGrid GridOf(const Call& call, size_t input) {
  return AffineGridOf(WholeRange(call, input).Normal(), call.instruction->grid.bits);
}

// A small operand or result of the norm on the grid of its range.
const float* OnRange(const Call& call, const float* x, int64_t count) {
  auto* values = call.Take<float>(count);
  host::PutOnRange(x, count, call.instruction->grid.bits, values);
  return values;
}

// in(0) on its grid, normalised, to out(0).
void Normalise(const Call& call, const float* means, const float* inverses) {
  const NormImage image(call.in_shape(0));
  const NormFactors factors = {means, inverses, OnRange(call, call.in(1), image.channels),
                               OnRange(call, call.in(2), image.channels)};
  OverRows(call, image, [&](int64_t row, int64_t rows) {
    float* y = call.out(0) + row * image.channels;
    call.machine.grids->floats.normalise(y, rows, image.channels, factors, y);
  });
}

void PutOnGrid(const Call& call) {
  const NormImage image(call.in_shape(0));
  const AffineGrid grid = GridOf(call, 0);
  OverRows(call, image, [&](int64_t row, int64_t rows) {
    const int64_t at = row * image.channels;
    call.machine.grids->floats.affine_values(call.in(0) + at, nullptr, rows * image.channels, grid,
                                             call.out(0) + at);
  });
}

// The backward of neighbouring channels, whose errors lie in out(0) and become dx there.
class ChannelGradients {
 public:
  ChannelGradients(const Call& call, const NormImage& image, const AffineGrid& grid,
                   const float* scales)
      : call_(call), image_(image), grid_(grid), scales_(scales) {}

  void Run(int64_t first, int64_t channels) {
    FindSums(first, channels);
    const double factor = ChunksOf(image_).factor();
    double factors[kNormChannels], at_ends[kNormChannels], mean_errors[kNormChannels];
    for (int64_t c = 0; c < channels; ++c) {
      const double inverse = call_.in(3)[image_.channels + first + c];
      call_.out(1)[first + c] = static_cast<float>(products_[c] * inverse);
      call_.out(1)[image_.channels + first + c] = static_cast<float>(sums_[c]);
      mean_errors[c] = sums_[c] / static_cast<double>(image_.rows);
      factors[c] = inverse * scales_[first + c];
      at_ends[c] = -factor * inverse * inverse * scales_[first + c] * products_[c];
    }
    float* dx = call_.out(0) + first;
    call_.machine.grids->floats.centre(image_.rows, image_.channels, channels, factors, mean_errors,
                                       dx);
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t chunk = 0; chunk < ChunksOf(image_).chunks(); ++chunk) {
        const int64_t begin = ChunksOf(image_).Begin(chunk);
        dx[(begin + largest_[chunk][c]) * image_.channels + c] += static_cast<float>(at_ends[c]);
        dx[(begin + least_[chunk][c]) * image_.channels + c] -= static_cast<float>(at_ends[c]);
      }
    }
  }

 private:
  void FindSums(int64_t first, int64_t channels) {
    double means[kNormChannels];
    float low[kNormChannels], high[kNormChannels];
    for (int64_t c = 0; c < channels; ++c) {
      means[c] = call_.in(3)[first + c];
      sums_[c] = products_[c] = 0;
    }
    const host::RangeChunks chunks = ChunksOf(image_);
    for (int64_t chunk = 0; chunk < chunks.chunks(); ++chunk) {
      const int64_t begin = chunks.Begin(chunk), at = begin * image_.channels + first;
      call_.machine.grids->floats.range_sums({.x = call_.in(1) + at,
                                              .rows = chunks.Begin(chunk + 1) - begin,
                                              .step = image_.channels,
                                              .channels = channels},
                                             {.sums = sums_,
                                              .low = low,
                                              .high = high,
                                              .least = least_[chunk],
                                              .largest = largest_[chunk],
                                              .products = products_,
                                              .errors = call_.out(0) + at,
                                              .means = means,
                                              .grid = grid_});
    }
  }

  const Call& call_;
  const NormImage& image_;
  const AffineGrid& grid_;
  const float* scales_;  // on their grid
  double sums_[kNormChannels], products_[kNormChannels];
  // By chunk: rows of the first extremes, from its begin on.
  int32_t least_[host::kMostRangeChunks][kNormChannels];
  int32_t largest_[host::kMostRangeChunks][kNormChannels];
};

}  // namespace

absl::Status RangeNormForward(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const NormImage image(call.in_shape(0));
  const host::RangeChunks chunks = ChunksOf(image);
  const host::RangeStatistics statistics = {call.out(1), call.out(2), call.out(3)};
  auto* inverses = call.Take<float>(image.channels);
  PutOnGrid(call);
  OverChannels(call, image, [&](int64_t first, int64_t channels) {
    double sums[kNormChannels] = {}, ranges[kNormChannels] = {};
    float low[kNormChannels], high[kNormChannels];
    int32_t least[kNormChannels], largest[kNormChannels];
    for (int64_t chunk = 0; chunk < chunks.chunks(); ++chunk) {
      const int64_t begin = chunks.Begin(chunk);
      call.machine.grids->floats.range_sums(
          {.x = call.out(0) + begin * image.channels + first,
           .rows = chunks.Begin(chunk + 1) - begin,
           .step = image.channels,
           .channels = channels},
          {.sums = sums, .low = low, .high = high, .least = least, .largest = largest});
      for (int64_t c = 0; c < channels; ++c) ranges[c] += static_cast<double>(high[c]) - low[c];
    }
    for (int64_t c = 0; c < channels; ++c) {
      host::FinishRangeStatistics(*call.instruction, chunks, sums[c], ranges[c], first + c,
                                  statistics, inverses + first + c);
    }
  });
  float* kept = statistics.stats + image.channels;
  host::PutOnRange(inverses, image.channels, call.instruction->grid.bits, kept);
  Normalise(call, statistics.stats, kept);
  return absl::OkStatus();
}

absl::Status RangeNormEval(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const int64_t channels = NormImage(call.in_shape(0)).channels;
  auto* inverses = call.Take<float>(channels);
  for (int64_t c = 0; c < channels; ++c)
    inverses[c] = host::RangeInverse(*call.instruction, call.in(4)[c]);
  PutOnGrid(call);
  Normalise(call, call.in(3), OnRange(call, inverses, channels));
  return absl::OkStatus();
}

absl::Status RangeNormInputGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const NormImage image(call.in_shape(0));
  const AffineGrid error_grid = GridOf(call, 0), grid = GridOf(call, 1);
  fp32::OverSampleDraws(call, [&](int, int64_t at, int64_t size, const uint32_t* draws) {
    call.machine.grids->floats.affine_values(call.in(0) + at, draws, size, error_grid,
                                             call.out(0) + at);
  });
  const float* scales = OnRange(call, call.in(2), image.channels);
  OverChannels(call, image, [&](int64_t first, int64_t channels) {
    ChannelGradients(call, image, grid, scales).Run(first, channels);
  });
  return absl::OkStatus();
}

}  // namespace runnel::cpu
