// Batch normalisation, channels-last: rows of C channels. Sums are taken in blocks of kBlockRows
// rows, single precision inside a block and double across them, always in the same order.

#include <algorithm>
#include <cmath>

#include "kernels/cpu/fp32/fp32_kernels.h"
#include "kernels/cpu/fp32/packing.h"

namespace runnel::fp32 {
namespace {

constexpr int64_t kBlockRows = 64;
constexpr int64_t kTaskBlocks = 16;  // what a thread takes at least

struct Rows {
  int64_t rows = 0, channels = 0;

  int64_t blocks() const { return (rows + kBlockRows - 1) / kBlockRows; }
  int64_t count(int64_t block) const { return std::min(kBlockRows, rows - block * kBlockRows); }
};

// Block i's two sums of each channel are at i * 2 * channels.
template <typename Body>
float* BlockSums(const Call& call, const Rows& r, const Body& body) {
  float* sums = call.Take<float>(r.blocks() * 2 * r.channels);
  ParallelFor(call.machine, r.blocks(), [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* a = sums + i * 2 * r.channels;
      body(i * kBlockRows * r.channels, r.count(i), a, a + r.channels);
    }
  });
  return sums;
}

// mean, sum of squared deviations: the blocks joined by Chan's formula.
void JoinMoments(const Rows& r, const float* blocks, double* mean, double* squares) {
  std::fill_n(mean, r.channels, 0.0);
  std::fill_n(squares, r.channels, 0.0);
  for (int64_t i = 0; i < r.blocks(); ++i) {
    const float* a = blocks + i * 2 * r.channels;
    const float* b = a + r.channels;
    const double before = static_cast<double>(i * kBlockRows);
    const double count = static_cast<double>(r.count(i));
    const double share = count / (before + count), weight = share * before;
    for (int64_t c = 0; c < r.channels; ++c) {
      const double delta = a[c] - mean[c];
      mean[c] += delta * share;
      squares[c] += b[c] + delta * delta * weight;
    }
  }
}

Activation ActivationOf(Calls calls, OpCode relu, OpCode relu6) {
  for (const Call& call : calls) {
    if (call.instruction->code == relu) return Activation::kRelu;
    if (call.instruction->code == relu6) return Activation::kRelu6;
  }
  return Activation::kNone;
}

// factor and offset from the float statistics, always by the same arithmetic: the backward has to
// see the very values that the forward saw.
Normalisation Ready(const Call& call, int64_t channels, const float* mean, const float* inverse,
                    const float* scale, const float* shift, Activation activation) {
  float* factor = call.Take<float>(channels);
  float* offset = call.Take<float>(channels);
  for (int64_t c = 0; c < channels; ++c) {
    factor[c] = inverse[c] * scale[c];
    offset[c] = shift == nullptr ? 0.0f : shift[c] - mean[c] * factor[c];
  }
  return {.factor = factor, .offset = offset, .mean = mean, .activation = activation};
}

void NormaliseAll(const Call& call, const Rows& r, const Normalisation& n, float* y) {
  ParallelFor(call.machine, (r.blocks() + kTaskBlocks - 1) / kTaskBlocks,
              [&](int, int64_t begin, int64_t end) {
                const int64_t row = begin * kTaskBlocks * kBlockRows;
                const int64_t last = std::min(r.rows, end * kTaskBlocks * kBlockRows);
                call.kernels().normalise(call.in(0) + row * r.channels, last - row, r.channels, n,
                                         y + row * r.channels);
              });
}

}  // namespace

absl::Status BatchNormForward(Calls calls) {
  const Call& call = calls[0];
  const Image image = ImageOf(call.in_shape(0));
  const Rows r = {image.rows(), image.c};
  const OpSpec& op = call.instruction->attributes;
  const float* blocks =
      BlockSums(call, r, [&](int64_t at, int64_t count, float* mean, float* squares) {
        call.kernels().moments(call.in(0) + at, count, r.channels, mean, squares);
      });
  double* mean = call.Take<double>(r.channels);
  double* squares = call.Take<double>(r.channels);
  JoinMoments(r, blocks, mean, squares);
  float* stats = call.out(1);
  float* running_mean = call.out(2);
  float* running_var = call.out(3);
  const double unbiased = static_cast<double>(std::max<int64_t>(1, r.rows - 1));
  for (int64_t c = 0; c < r.channels; ++c) {
    const double variance = squares[c] / static_cast<double>(r.rows);
    stats[c] = static_cast<float>(mean[c]);
    stats[r.channels + c] = static_cast<float>(1.0 / std::sqrt(variance + op.epsilon));
    running_mean[c] =
        static_cast<float>((1 - op.momentum) * running_mean[c] + op.momentum * mean[c]);
    running_var[c] = static_cast<float>((1 - op.momentum) * running_var[c] +
                                        op.momentum * (squares[c] / unbiased));
  }
  const Activation activation = ActivationOf(calls, OpCode::kReluForward, OpCode::kRelu6Forward);
  NormaliseAll(
      call, r,
      Ready(call, r.channels, stats, stats + r.channels, call.in(1), call.in(2), activation),
      calls.back().out(0));
  return absl::OkStatus();
}

absl::Status BatchNormEval(Calls calls) {
  const Call& call = calls[0];
  const Image image = ImageOf(call.in_shape(0));
  float* inverse = call.Take<float>(image.c);
  for (int64_t c = 0; c < image.c; ++c) {
    inverse[c] =
        static_cast<float>(1.0 / std::sqrt(call.in(4)[c] + call.instruction->attributes.epsilon));
  }
  const Activation activation = ActivationOf(calls, OpCode::kReluForward, OpCode::kRelu6Forward);
  NormaliseAll(call, {image.rows(), image.c},
               Ready(call, image.c, call.in(3), inverse, call.in(1), call.in(2), activation),
               calls.back().out(0));
  return absl::OkStatus();
}

// With u = (x - mean) * inverse: dshift = sum g, dscale = sum g * u,
// dx = factor * (g - dshift / n - u * dscale / n) = factor * g + a * x + b.
absl::Status BatchNormInputGradient(Calls calls) {
  const Call& call = calls.back();
  const Image image = ImageOf(call.in_shape(0));
  const Rows r = {image.rows(), image.c};
  const float* dy = calls[0].in(0);
  const float* x = call.in(1);
  const float* mean = call.in(3);
  const float* inverse = mean + r.channels;
  const Normalisation n =
      Ready(call, r.channels, mean, inverse, call.in(2), nullptr, Activation::kNone);
  const float* blocks =
      BlockSums(call, r, [&](int64_t at, int64_t count, float* sums, float* products) {
        call.kernels().normalise_sums(dy + at, x + at, count, r.channels, n, sums, products);
      });
  double* sum = call.Take<double>(2 * r.channels);
  std::fill_n(sum, 2 * r.channels, 0.0);
  for (int64_t i = 0; i < r.blocks(); ++i) {
    for (int64_t c = 0; c < 2 * r.channels; ++c) sum[c] += blocks[i * 2 * r.channels + c];
  }
  float* a = call.Take<float>(r.channels);
  float* b = call.Take<float>(r.channels);
  const double rows = static_cast<double>(r.rows);
  for (int64_t c = 0; c < r.channels; ++c) {
    const double product = sum[r.channels + c] * inverse[c];
    call.out(1)[c] = static_cast<float>(product);
    call.out(1)[r.channels + c] = static_cast<float>(sum[c]);
    const double slope = n.factor[c] * (product * inverse[c] / rows);
    a[c] = static_cast<float>(-slope);
    b[c] = static_cast<float>(slope * mean[c] - n.factor[c] * (sum[c] / rows));
  }
  ParallelFor(call.machine, r.blocks(), [&](int, int64_t begin, int64_t end) {
    const int64_t row = begin * kBlockRows, last = std::min(r.rows, end * kBlockRows);
    const int64_t at = row * r.channels;
    call.kernels().normalise_gradient(dy + at, x + at, last - row, r.channels, n, a, b,
                                      call.out(0) + at);
  });
  return absl::OkStatus();
}

absl::Status BatchNormWeightGradient(Calls calls) {
  const Call& call = calls[0];
  const int64_t channels = call.out_shape(0).elements();
  const bool accumulate = call.context->accumulate;
  StoreGradient(call.kernels(), call.in(0), channels, accumulate, call.out(0));
  StoreGradient(call.kernels(), call.in(0) + channels, channels, accumulate, call.out(1));
  return absl::OkStatus();
}

void ColumnSums(const Call& call, const float* x, int64_t rows, int64_t columns, float* sums) {
  const Rows r = {rows, columns};
  double* total = call.Take<double>(columns);
  float* part = call.Take<float>(columns);
  std::fill_n(total, columns, 0.0);
  for (int64_t i = 0; i < r.blocks(); ++i) {
    call.kernels().sums(x + i * kBlockRows * columns, r.count(i), columns, part);
    for (int64_t c = 0; c < columns; ++c) total[c] += part[c];
  }
  for (int64_t c = 0; c < columns; ++c) sums[c] = static_cast<float>(total[c]);
}

}  // namespace runnel::fp32
