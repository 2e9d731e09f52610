// Batch normalisation, channels-last: rows of C channels. Sums are taken in blocks of rows, single
// precision inside a block and double across them.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/torch/kernel.h"
#include "kernels/torch/simd.h"

namespace runnel::torch_kernels {
namespace {

constexpr int64_t kBlockRows = 64;
constexpr int64_t kChannelGroup = 64;  // what one thread takes at least

// Mean and sum of squared deviations of each channel over one block of rows.
RUNNEL_TORCH_SIMD void BlockMoments(const float* x, int64_t rows, int64_t stride, int64_t begin,
                                    int64_t end, float* mean, float* squares) {
  const float scale = 1.0f / static_cast<float>(rows);
  ForTiles(begin, end, [&]<typename T>(int64_t c) RUNNEL_TORCH_INLINE {
    T sum, deviation, v;
    sum.Zero();
    deviation.Zero();
    for (int64_t r = 0; r < rows; ++r) {
      v.Load(x + r * stride + c);
      for (size_t k = 0; k < std::size(v.v); ++k) sum.v[k] += v.v[k];
    }
    for (size_t k = 0; k < std::size(v.v); ++k) sum.v[k] *= scale;
    for (int64_t r = 0; r < rows; ++r) {
      v.Load(x + r * stride + c);
      for (size_t k = 0; k < std::size(v.v); ++k) {
        v.v[k] -= sum.v[k];
        deviation.v[k] += v.v[k] * v.v[k];
      }
    }
    sum.Store(mean + c);
    deviation.Store(squares + c);
  });
}

// Sums of dy and of dy * (x - mean) of each channel over one block of rows.
RUNNEL_TORCH_SIMD void BlockGradients(const float* dy, const float* x, const float* mean,
                                      int64_t rows, int64_t stride, int64_t begin, int64_t end,
                                      float* sums, float* products) {
  ForTiles(begin, end, [&]<typename T>(int64_t c) RUNNEL_TORCH_INLINE {
    T sum, product, m, g, v;
    sum.Zero();
    product.Zero();
    m.Load(mean + c);
    for (int64_t r = 0; r < rows; ++r) {
      g.Load(dy + r * stride + c);
      v.Load(x + r * stride + c);
      for (size_t k = 0; k < std::size(v.v); ++k) {
        sum.v[k] += g.v[k];
        product.v[k] += g.v[k] * (v.v[k] - m.v[k]);
      }
    }
    sum.Store(sums + c);
    product.Store(products + c);
  });
}

RUNNEL_TORCH_SIMD void BlockSums(const float* x, int64_t rows, int64_t stride, int64_t begin,
                                 int64_t end, float* sums) {
  ForTiles(begin, end, [&]<typename T>(int64_t c) RUNNEL_TORCH_INLINE {
    T sum, v;
    sum.Zero();
    for (int64_t r = 0; r < rows; ++r) {
      v.Load(x + r * stride + c);
      for (size_t k = 0; k < std::size(v.v); ++k) sum.v[k] += v.v[k];
    }
    sum.Store(sums + c);
  });
}

// y = (x - mean) * factor + shift
RUNNEL_TORCH_SIMD void Normalise(const float* __restrict x, int64_t rows, int64_t channels,
                                 const float* __restrict mean, const float* __restrict factor,
                                 const float* __restrict shift, float* __restrict y) {
  for (int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
    for (int64_t c = 0; c < channels; ++c) y[c] = (x[c] - mean[c]) * factor[c] + shift[c];
  }
}

// dx = factor * (dy - mean_dy - (x - mean) * slope)
RUNNEL_TORCH_SIMD void ApplyGradient(const float* __restrict dy, const float* __restrict x,
                                     int64_t rows, int64_t channels, const float* __restrict mean,
                                     const float* __restrict factor,
                                     const float* __restrict mean_dy, const float* __restrict slope,
                                     float* __restrict dx) {
  for (int64_t r = 0; r < rows; ++r, dy += channels, x += channels, dx += channels) {
    for (int64_t c = 0; c < channels; ++c) {
      dx[c] = factor[c] * (dy[c] - mean_dy[c] - (x[c] - mean[c]) * slope[c]);
    }
  }
}

// Two double and three float values a channel.
struct Accumulators {
  double *a, *b;
  float *block_a, *block_b, *factor;

  Accumulators(Arena* arena, int64_t channels) {
    a = reinterpret_cast<double*>(arena->Get(channels * 28));
    b = a + channels;
    block_a = reinterpret_cast<float*>(b + channels);
    block_b = block_a + channels;
    factor = block_b + channels;
    std::fill_n(a, 2 * channels, 0.0);
  }
};

// a = mean, b = sum of squared deviations, of all rows (blocks joined by Chan's formula).
void Moments(const float* x, int64_t rows, int64_t channels, const Accumulators& acc) {
  ParallelFor((channels + kChannelGroup - 1) / kChannelGroup, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kChannelGroup, end = std::min(channels, last * kChannelGroup);
    for (int64_t r = 0; r < rows; r += kBlockRows) {
      const int64_t count = std::min(kBlockRows, rows - r);
      BlockMoments(x + r * channels, count, channels, begin, end, acc.block_a, acc.block_b);
      const double share = static_cast<double>(count) / static_cast<double>(r + count);
      const double weight = share * static_cast<double>(r);
      for (int64_t c = begin; c < end; ++c) {
        const double delta = acc.block_a[c] - acc.a[c];
        acc.a[c] += delta * share;
        acc.b[c] += acc.block_b[c] + delta * delta * weight;
      }
    }
  });
}

void NormaliseRows(const Call& call, const Image& image, const float* mean, const float* factor) {
  ParallelFor(image.n, [&](int64_t begin, int64_t end) {
    const int64_t offset = begin * image.positions() * image.c;
    Normalise(call.in(0) + offset, (end - begin) * image.positions(), image.c, mean, factor,
              call.in(2), call.out(0) + offset);
  });
}

}  // namespace

absl::Status BatchNormForward(const Call& call) {
  const Image image = ImageOf(call.in_shape(0));
  const int64_t channels = image.c, rows = image.rows();
  const OpSpec& op = call.instruction->attributes;
  const Accumulators acc(call.arena, channels);
  Moments(call.in(0), rows, channels, acc);
  float* mean = call.out(1);
  float* inverse = mean + channels;
  float* running_mean = call.out(2);
  float* running_var = call.out(3);
  const double unbiased = static_cast<double>(std::max<int64_t>(1, rows - 1));
  for (int64_t c = 0; c < channels; ++c) {
    mean[c] = static_cast<float>(acc.a[c]);
    inverse[c] =
        static_cast<float>(1.0 / std::sqrt(acc.b[c] / static_cast<double>(rows) + op.epsilon));
    acc.factor[c] = inverse[c] * call.in(1)[c];
    running_mean[c] =
        static_cast<float>((1 - op.momentum) * running_mean[c] + op.momentum * acc.a[c]);
    running_var[c] = static_cast<float>((1 - op.momentum) * running_var[c] +
                                        op.momentum * (acc.b[c] / unbiased));
  }
  NormaliseRows(call, image, mean, acc.factor);
  return absl::OkStatus();
}

absl::Status BatchNormEval(const Call& call) {
  const Image image = ImageOf(call.in_shape(0));
  const Accumulators acc(call.arena, image.c);
  const double epsilon = call.instruction->attributes.epsilon;
  for (int64_t c = 0; c < image.c; ++c) {
    acc.factor[c] = static_cast<float>(1.0 / std::sqrt(call.in(4)[c] + epsilon)) * call.in(1)[c];
  }
  NormaliseRows(call, image, call.in(3), acc.factor);
  return absl::OkStatus();
}

absl::Status BatchNormAgain(const Call& call) {
  const Image image = ImageOf(call.in_shape(0));
  const Accumulators acc(call.arena, image.c);
  const float* mean = call.in(3);
  for (int64_t c = 0; c < image.c; ++c) acc.factor[c] = mean[image.c + c] * call.in(1)[c];
  NormaliseRows(call, image, mean, acc.factor);
  return absl::OkStatus();
}

absl::Status BatchNormInputGradient(const Call& call) {
  const Image image = ImageOf(call.in_shape(0));
  const int64_t channels = image.c, rows = image.rows();
  const float* mean = call.in(3);
  const float* inverse = mean + channels;
  const Accumulators acc(call.arena, channels);
  ParallelFor((channels + kChannelGroup - 1) / kChannelGroup, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kChannelGroup, end = std::min(channels, last * kChannelGroup);
    for (int64_t r = 0; r < rows; r += kBlockRows) {
      BlockGradients(call.in(0) + r * channels, call.in(1) + r * channels, mean,
                     std::min(kBlockRows, rows - r), channels, begin, end, acc.block_a,
                     acc.block_b);
      for (int64_t c = begin; c < end; ++c) acc.a[c] += acc.block_a[c];
      for (int64_t c = begin; c < end; ++c) acc.b[c] += acc.block_b[c];
    }
  });
  float* dscale = call.out(1);
  float* dshift = dscale + channels;
  for (int64_t c = 0; c < channels; ++c) {
    const double sum = acc.a[c], product = acc.b[c] * inverse[c];
    dscale[c] = static_cast<float>(product);
    dshift[c] = static_cast<float>(sum);
    acc.block_a[c] = static_cast<float>(sum / static_cast<double>(rows));
    acc.block_b[c] = static_cast<float>(product * inverse[c] / static_cast<double>(rows));
    acc.factor[c] = inverse[c] * call.in(2)[c];
  }
  ParallelFor(image.n, [&](int64_t begin, int64_t end) {
    const int64_t offset = begin * image.positions() * channels;
    ApplyGradient(call.in(0) + offset, call.in(1) + offset, (end - begin) * image.positions(),
                  channels, mean, acc.factor, acc.block_a, acc.block_b, call.out(0) + offset);
  });
  return absl::OkStatus();
}

absl::Status BatchNormWeightGradient(const Call& call) {
  const int64_t channels = call.out_shape(0).elements();
  const bool accumulate = call.context->accumulate;
  StoreGradient(call.in(0), channels, accumulate, call.out(0));
  StoreGradient(call.in(0) + channels, channels, accumulate, call.out(1));
  return absl::OkStatus();
}

void ColumnSums(const float* x, int64_t rows, int64_t columns, float* sums) {
  std::vector<double> total(columns);
  std::vector<float> part(columns);
  for (int64_t r = 0; r < rows; r += kBlockRows) {
    BlockSums(x + r * columns, std::min(kBlockRows, rows - r), columns, 0, columns, part.data());
    for (int64_t c = 0; c < columns; ++c) total[c] += part[c];
  }
  for (int64_t c = 0; c < columns; ++c) sums[c] = static_cast<float>(total[c]);
}

}  // namespace runnel::torch_kernels
