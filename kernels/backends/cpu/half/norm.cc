// Batch normalisation, channels-last.

#include <algorithm>
#include <cmath>

#include "kernels/backends/cpu/half/half_kernels.h"

namespace runnel::half {
namespace {

constexpr int64_t kPiece = 1 << 12;  // elements that are widened at a time

// Rows of a piece, one at least.
int64_t PieceRows(int64_t channels) { return std::max<int64_t>(1, kPiece / channels); }

// Calls body(channel, channels, row, rows): every thread takes some channels through all rows in
// ascending order, so that a channel's sum is one thread's.
template <typename Body>
void OverChannels(const Call& call, const Image& image, const Body& body) {
  constexpr int64_t kUnit = 16;
  const int64_t units = (image.c + kUnit - 1) / kUnit;
  ParallelFor(call.machine, units, [&](int worker, int64_t begin, int64_t end) {
    const int64_t channel = begin * kUnit;
    const int64_t channels = std::min(image.c, end * kUnit) - channel;
    const int64_t step = PieceRows(channels);
    for (int64_t row = 0; row < image.rows(); row += step)
      body(worker, channel, channels, row, std::min(step, image.rows() - row));
  });
}

// A piece of a tensor's rows, some channels of each, widened.
void WidenPiece(const Conversions& conversions, const uint16_t* x, const Image& image,
                int64_t channel, int64_t channels, int64_t row, int64_t rows, float* wide) {
  if (channels == image.c) return conversions.widen(x + row * image.c, rows * image.c, wide);
  for (int64_t r = 0; r < rows; ++r)
    conversions.widen(x + (row + r) * image.c + channel, channels, wide + r * channels);
}

// FP32 of a piece for each worker.
float* Pieces(const Call& call, int64_t channels) {
  return call.Take<float>(call.machine.workers() * std::max(kPiece, channels));
}

double* Zeros(const Call& call, int64_t count) {
  double* values = call.Take<double>(count);
  std::fill_n(values, count, 0.0);
  return values;
}

double* Doubles(const Call& call, const float* values, int64_t count) {
  return std::copy_n(values, count, call.Take<double>(count)) - count;
}

// Mean and inverse deviation of this micro-batch, and the running ones.
void TakeStatistics(const Call& call, const Image& image) {
  const Loops& loops = *call.machine.half;
  const Conversions& from = OfInput(call, 0);
  float* const pieces = Pieces(call, image.c);
  const int64_t piece = std::max(kPiece, image.c);
  double *const mean = Zeros(call, image.c), *const squares = Zeros(call, image.c);
  const auto pass = [&](bool second) {
    OverChannels(call, image,
                 [&](int worker, int64_t c, int64_t channels, int64_t row, int64_t rows) {
                   float* const x = pieces + worker * piece;
                   WidenPiece(from, call.in<uint16_t>(0), image, c, channels, row, rows, x);
                   second ? loops.add_squares(x, rows, channels, mean + c, squares + c)
                          : loops.add_rows(x, rows, channels, mean + c);
                 });
  };
  const auto count = static_cast<double>(image.rows());
  pass(/*second=*/false);
  for (int64_t c = 0; c < image.c; ++c) mean[c] /= count;
  pass(/*second=*/true);
  const OpSpec& op = call.instruction->attributes;
  float* const stats = call.out(1);
  for (int64_t c = 0; c < image.c; ++c) {
    const double variance = squares[c] / count;
    const double unbiased = count > 1 ? squares[c] / (count - 1) : variance;
    stats[c] = static_cast<float>(mean[c]);
    stats[image.c + c] = static_cast<float>(1 / std::sqrt(variance + op.epsilon));
    float &running_mean = call.out(2)[c], &running_var = call.out(3)[c];
    running_mean = static_cast<float>((1 - op.momentum) * running_mean + op.momentum * mean[c]);
    running_var = static_cast<float>((1 - op.momentum) * running_var + op.momentum * unbiased);
  }
}

// What normalises: kBatchNormEval the running statistics, the others the micro-batch's.
Norm NormOf(const Call& call, int64_t channels) {
  const OpCode code = call.instruction->code;
  Norm norm;
  norm.scale = Doubles(call, call.in(1), channels);
  norm.shift = Doubles(call, call.in(2), channels);
  if (code == OpCode::kBatchNormEval) {
    norm.mean = Doubles(call, call.in(3), channels);
    double* inverse = Doubles(call, call.in(4), channels);
    for (int64_t c = 0; c < channels; ++c)
      inverse[c] = 1 / std::sqrt(inverse[c] + call.instruction->attributes.epsilon);
    norm.inverse = inverse;
  } else {
    const float* stats = code == OpCode::kBatchNormForward ? call.out(1) : call.in(3);
    norm.mean = Doubles(call, stats, channels);
    norm.inverse = Doubles(call, stats + channels, channels);
  }
  return norm;
}

// body(worker, row, rows) on pieces of all rows.
template <typename Body>
void OverRows(const Call& call, const Image& image, const Body& body) {
  const int64_t step = PieceRows(image.c);
  ParallelFor(call.machine, (image.rows() + step - 1) / step,
              [&](int worker, int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i)
                  body(worker, i * step, std::min(step, image.rows() - i * step));
              });
}

}  // namespace

absl::Status BatchNormForward(Calls calls) {
  const Call& call = calls[0];
  const Image image = ImageOf(call.in_shape(0));
  if (call.instruction->code == OpCode::kBatchNormForward) TakeStatistics(call, image);
  const Norm norm = NormOf(call, image.c);
  const Conversions& from = OfInput(call, 0);
  float* const pieces = Pieces(call, image.c);
  OverRows(call, image, [&](int worker, int64_t row, int64_t rows) {
    float* const x = pieces + worker * std::max(kPiece, image.c);
    const int64_t at = row * image.c;
    from.widen(call.in<uint16_t>(0) + at, rows * image.c, x);
    call.machine.half->normalise(x, rows, image.c, norm, x);
    Store(call, x, rows * image.c, at);
  });
  return absl::OkStatus();
}

absl::Status BatchNormInputGradient(Calls calls) {
  const Call& call = calls[0];
  const Loops& loops = *call.machine.half;
  const Image image = ImageOf(call.in_shape(0));
  const int64_t channels = image.c, piece = std::max(kPiece, channels);
  const Conversions &of_dy = OfInput(call, 0), &of_x = OfInput(call, 1);
  float *const dys = Pieces(call, channels), *const xs = Pieces(call, channels);
  double *const sums = Zeros(call, channels), *const products = Zeros(call, channels);
  Norm norm;
  norm.mean = Doubles(call, call.in(3), channels);
  norm.inverse = Doubles(call, call.in(3) + channels, channels);
  OverChannels(call, image, [&](int worker, int64_t c, int64_t count, int64_t row, int64_t rows) {
    float *const dy = dys + worker * piece, *const x = xs + worker * piece;
    WidenPiece(of_dy, call.in<uint16_t>(0), image, c, count, row, rows, dy);
    WidenPiece(of_x, call.in<uint16_t>(1), image, c, count, row, rows, x);
    loops.add_gradients(dy, x, rows, count, {norm.mean + c, norm.inverse + c}, sums + c,
                        products + c);
  });
  double* const scale = Doubles(call, call.in(2), channels);
  for (int64_t c = 0; c < channels; ++c) {
    call.out(1)[c] = static_cast<float>(products[c]);
    call.out(1)[channels + c] = static_cast<float>(sums[c]);
    scale[c] *= norm.inverse[c];
    sums[c] /= static_cast<double>(image.rows());
    products[c] /= static_cast<double>(image.rows());
  }
  norm.scale = scale;
  norm.shift = sums;
  norm.slope = products;
  OverRows(call, image, [&](int worker, int64_t row, int64_t rows) {
    float *const dy = dys + worker * piece, *const x = xs + worker * piece;
    const int64_t at = row * channels;
    of_dy.widen(call.in<uint16_t>(0) + at, rows * channels, dy);
    of_x.widen(call.in<uint16_t>(1) + at, rows * channels, x);
    loops.norm_gradient(dy, x, rows, channels, norm, dy);
    Store(call, dy, rows * channels, at);
  });
  return absl::OkStatus();
}

}  // namespace runnel::half
