#include "kernels/backends/cpu/fp32/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/cpu/fp32/packing.h"

namespace runnel::fp32 {
namespace {

// body(worker, row, count) on all rows, in multiples of SumUnitRows.
template <typename Body>
void OverRows(const Call& call, const Image& image, const Body& body) {
  const int64_t unit = SumUnitRows(image), rows = image.rows();
  ParallelFor(call.machine, (rows + unit - 1) / unit, [&](int worker, int64_t begin, int64_t end) {
    body(worker, begin * unit, std::min(rows, end * unit) - begin * unit);
  });
}

}  // namespace

Activation ActivationAfter(Calls calls) {
  if (calls.size() < 2) return Activation::kNone;
  return calls[1].instruction->code == OpCode::kReluForward ? Activation::kRelu
                                                            : Activation::kRelu6;
}

Activation ActivationBefore(Calls calls) {
  if (calls.size() < 2) return Activation::kNone;
  return calls[0].instruction->code == OpCode::kReluInputGradient ? Activation::kRelu
                                                                  : Activation::kRelu6;
}

PieceSums::PieceSums(const Call& call, const Image& image)
    : rows_(image.rows()), channels_(image.c), block_rows_(SumUnitRows(image)) {
  pieces_ = (block_rows_ + kPieceRows - 1) / kPieceRows;
  const int64_t blocks = (rows_ + block_rows_ - 1) / block_rows_;
  sums_ = call.Take<float>(blocks * pieces_ * 2 * channels_);
}

void AddMoments(const Call& call, const float* x, int64_t row, int64_t count, PieceSums& sums) {
  sums.ForPieces(row, count, [&](int64_t at, int64_t rows, float* mean, float* squares) {
    call.kernels().moments(x + at * sums.channels(), rows, sums.channels(), mean, squares);
  });
}

// The pieces' moments are joined by Chan's formula.
void FinishStatistics(const Call& norm, const PieceSums& sums) {
  const int64_t channels = sums.channels();
  double* mean = norm.Take<double>(channels);
  double* squares = norm.Take<double>(channels);
  std::fill_n(mean, channels, 0.0);
  std::fill_n(squares, channels, 0.0);
  sums.ForPieces(0, sums.rows(), [&](int64_t at, int64_t count, const float* a, const float* b) {
    const double before = static_cast<double>(at);
    const double share = static_cast<double>(count) / (before + static_cast<double>(count));
    const double weight = share * before;
    for (int64_t c = 0; c < channels; ++c) {
      const double delta = a[c] - mean[c];
      mean[c] += delta * share;
      squares[c] += b[c] + delta * delta * weight;
    }
  });
  const OpSpec& op = norm.instruction->attributes;
  float* stats = norm.out(1);
  float* running_mean = norm.out(2);
  float* running_var = norm.out(3);
  if (host::NormsByRunning(*norm.instruction, norm.in_shape(0))) {
    for (int64_t c = 0; c < channels; ++c) {
      stats[c] = running_mean[c];
      stats[channels + c] =
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(running_var[c]) + op.epsilon));
    }
    return;
  }
  const double rows = static_cast<double>(sums.rows());
  for (int64_t c = 0; c < channels; ++c) {
    stats[c] = static_cast<float>(mean[c]);
    stats[channels + c] = static_cast<float>(1.0 / std::sqrt(squares[c] / rows + op.epsilon));
    const double unbiased = squares[c] / std::max(1.0, rows - 1);
    running_mean[c] =
        static_cast<float>((1 - op.momentum) * running_mean[c] + op.momentum * mean[c]);
    running_var[c] =
        static_cast<float>((1 - op.momentum) * running_var[c] + op.momentum * unbiased);
  }
}

// Always by the same arithmetic: the backward has to see the very values that the forward saw.
Normalisation NormalisationOf(const Call& norm, Activation activation) {
  const int64_t channels = norm.in_shape(0)[1];
  const bool backward = norm.instruction->code == OpCode::kBatchNormInputGradient;
  const bool eval = norm.instruction->code == OpCode::kBatchNormEval;
  const bool forward = norm.instruction->code == OpCode::kBatchNormForward;
  const float* scale = norm.in(backward ? 2 : 1);
  const float* shift = !backward ? norm.in(2) : norm.inputs.size() > 4 ? norm.in(4) : nullptr;
  const float* mean = forward ? norm.out(1) : norm.in(3);
  float* factor = norm.Take<float>(channels);
  float* offset = norm.Take<float>(channels);
  for (int64_t c = 0; c < channels; ++c) {
    const float inverse =
        eval ? static_cast<float>(1.0 /
                                  std::sqrt(norm.in(4)[c] + norm.instruction->attributes.epsilon))
             : mean[channels + c];
    factor[c] = inverse * scale[c];
    offset[c] = shift == nullptr ? 0.0f : shift[c] - mean[c] * factor[c];
  }
  return {.factor = factor, .offset = offset, .mean = mean, .activation = activation};
}

void AddGradientSums(const Call& norm, const Normalisation& n, const float* dy, int64_t row,
                     int64_t count, PieceSums& sums) {
  const float* x = norm.in(1);
  sums.ForPieces(row, count, [&](int64_t at, int64_t rows, float* sum, float* product) {
    const int64_t offset = at * sums.channels();
    norm.kernels().normalise_sums(dy + offset, x + offset, rows, sums.channels(), n, sum, product);
  });
}

void FinishGradientSums(const Call& norm, const PieceSums& sums) {
  const int64_t channels = sums.channels();
  double* sum = norm.Take<double>(channels);
  double* product = norm.Take<double>(channels);
  std::fill_n(sum, channels, 0.0);
  std::fill_n(product, channels, 0.0);
  sums.ForPieces(0, sums.rows(), [&](int64_t, int64_t, const float* a, const float* b) {
    for (int64_t c = 0; c < channels; ++c) sum[c] += a[c];
    for (int64_t c = 0; c < channels; ++c) product[c] += b[c];
  });
  const float* inverse = norm.in(3) + channels;
  for (int64_t c = 0; c < channels; ++c) {
    norm.out(1)[c] = static_cast<float>(product[c] * inverse[c]);
    norm.out(1)[channels + c] = static_cast<float>(sum[c]);
  }
}

// With u = (x - mean) * inverse: dx = factor * (g - dshift / n - u * dscale / n)
// = factor * g + (a * x + b).
RowSource GradientSource(const Call& norm, const Normalisation& n, const float* dy) {
  const Image image = ImageOf(norm.in_shape(0));
  const float* inverse = n.mean + image.c;
  const float* dscale = norm.out(1);
  const float* dshift = dscale + image.c;
  float* a = norm.Take<float>(image.c);
  float* b = norm.Take<float>(image.c);
  const double rows = static_cast<double>(image.rows());
  const bool by_running = host::NormsByRunning(*norm.instruction, norm.in_shape(0));
  for (int64_t c = 0; c < image.c; ++c) {
    if (by_running) {
      a[c] = b[c] = 0;
      continue;
    }
    const double factor = n.factor[c];
    const double slope = factor * dscale[c] * inverse[c] / rows;
    a[c] = static_cast<float>(-slope);
    b[c] = static_cast<float>(slope * n.mean[c] - factor * dshift[c] / rows);
  }
  return {.kind = RowSource::Kind::kGradient,
          .channels = image.c,
          .x = norm.in(1),
          .dy = dy,
          .norm = n,
          .a = a,
          .b = b};
}

void EnsureStatistics(const Call& norm) {
  EnsureStatistics(norm, [](int, const float*, int64_t) {});
}

void EnsureStatistics(const Call& norm, PieceFn also) {
  if (norm.sums_done || norm.instruction->code != OpCode::kBatchNormForward) return;
  const Image image = ImageOf(norm.in_shape(0));
  PieceSums sums(norm, image);
  OverRows(norm, image, [&](int worker, int64_t row, int64_t count) {
    sums.ForPieces(row, count, [&](int64_t at, int64_t rows, float* mean, float* squares) {
      const float* x = norm.in(0) + at * image.c;
      norm.kernels().moments(x, rows, image.c, mean, squares);
      also(worker, x, rows);
    });
  });
  FinishStatistics(norm, sums);
}

void EnsureGradientSums(const Call& norm, const Normalisation& n, const float* dy) {
  if (norm.sums_done) return;
  const Image image = ImageOf(norm.in_shape(0));
  PieceSums sums(norm, image);
  OverRows(norm, image, [&](int, int64_t row, int64_t count) {
    AddGradientSums(norm, n, dy, row, count, sums);
  });
  FinishGradientSums(norm, sums);
}

// With the activation behind it, if that is calls[1].
absl::Status BatchNormForward(Calls calls) {
  const Call& call = calls[0];
  EnsureStatistics(call);
  const Image image = ImageOf(call.in_shape(0));
  const Normalisation n = NormalisationOf(call, ActivationAfter(calls));
  OverRows(call, image, [&](int, int64_t row, int64_t count) {
    call.kernels().normalise(call.in(0) + row * image.c, count, image.c, n,
                             calls.back().out(0) + row * image.c);
  });
  return absl::OkStatus();
}

// With the gradient of the activation behind it, if that is calls[0].
absl::Status BatchNormInputGradient(Calls calls) {
  const Call& call = calls.back();
  const Image image = ImageOf(call.in_shape(0));
  const float* dy = calls[0].in(0);
  const Normalisation n = NormalisationOf(call, ActivationBefore(calls));
  EnsureGradientSums(call, n, dy);
  const RowSource dx = GradientSource(call, n, dy);
  OverRows(call, image, [&](int, int64_t row, int64_t count) {
    dx.Make(call.kernels(), row, count, call.out(0) + row * image.c);
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
  double* total = call.Take<double>(columns);
  float* part = call.Take<float>(columns);
  std::fill_n(total, columns, 0.0);
  for (int64_t row = 0; row < rows; row += kPieceRows) {
    call.kernels().sums(x + row * columns, std::min(kPieceRows, rows - row), columns, part);
    for (int64_t c = 0; c < columns; ++c) total[c] += part[c];
  }
  for (int64_t c = 0; c < columns; ++c) sums[c] = static_cast<float>(total[c]);
}

}  // namespace runnel::fp32
