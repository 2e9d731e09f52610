// Rows of a table, looked up by tokens, and the table's gradient.

#include <algorithm>

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/host/plain_kernels.h"
#include "proto/base/status_macros.h"

namespace runnel::fp32 {
namespace {

absl::Span<const int32_t> Tokens(const Call& call, size_t operand) {
  return {call.in<int32_t>(operand), static_cast<size_t>(call.in_shape(operand).elements())};
}

// Sums as a row of a weight-gradient.
void Store(const Call& call, const double* sums, int64_t width, float* gradient) {
  for (int64_t i = 0; i < width; ++i) {
    const auto sum = static_cast<float>(sums[i]);
    gradient[i] = call.context->accumulate ? gradient[i] + sum : sum;
  }
}

// Each position's sum over the samples; `sums` has a row for each worker.
void PositionGradient(const Call& call, int64_t width, double* sums) {
  const int64_t samples = call.in_shape(1)[0], positions = call.in_shape(1)[1];
  ParallelFor(call.machine, positions, [&](int worker, int64_t begin, int64_t end) {
    double* const sum = sums + worker * width;
    for (int64_t position = begin; position < end; ++position) {
      std::fill_n(sum, width, 0.0);
      for (int64_t n = 0; n < samples; ++n) {
        const float* const dy = call.in(0) + (n * positions + position) * width;
        for (int64_t i = 0; i < width; ++i) sum[i] += static_cast<double>(dy[i]);
      }
      Store(call, sum, width, call.out(1) + position * width);
    }
  });
}

}  // namespace

absl::Status EmbeddingForward(Calls calls) {
  const Call& call = calls[0];
  const absl::Span<const int32_t> tokens = Tokens(call, 0);
  const int64_t width = call.out_shape(0).elements() / call.in_shape(0).elements();
  RUNNEL_RETURN_IF_ERROR(host::CheckTokens(tokens, call.in_shape(1).elements() / width));
  const int64_t positions = call.in_shape(0)[1];
  ParallelFor(call.machine, static_cast<int64_t>(tokens.size()),
              [&](int, int64_t begin, int64_t end) {
                float* y = call.out(0) + begin * width;
                for (int64_t i = begin; i < end; ++i, y += width) {
                  const float* const row = call.in(1) + tokens[static_cast<size_t>(i)] * width;
                  if (call.inputs.size() > 2) {
                    call.kernels().add(row, call.in(2) + i % positions * width, width, y);
                  } else {
                    std::copy_n(row, width, y);
                  }
                }
              });
  return absl::OkStatus();
}

// A row's places are collected first (a counting sort), so that each row is one thread's sum, in
// ascending order of places: the same bytes with any number of threads.
absl::Status EmbeddingWeightGradient(Calls calls) {
  const Call& call = calls[0];
  const absl::Span<const int32_t> tokens = Tokens(call, 1);
  const int64_t width = call.in_shape(0).elements() / call.in_shape(1).elements();
  const int64_t rows = call.out_shape(0).elements() / width;
  RUNNEL_RETURN_IF_ERROR(host::CheckTokens(tokens, rows));
  const auto count = static_cast<int64_t>(tokens.size());
  int64_t* const begins = call.Take<int64_t>(rows + 1);  // of each row's places
  int64_t* const places = call.Take<int64_t>(count);
  std::fill_n(begins, rows + 1, int64_t{0});
  for (const int32_t token : tokens) ++begins[token];
  for (int64_t row = 0; row < rows; ++row) begins[row + 1] += begins[row];
  for (int64_t i = count - 1; i >= 0; --i) places[--begins[tokens[static_cast<size_t>(i)]]] = i;
  double* const sums = call.Take<double>(call.machine.workers() * width);
  ParallelFor(call.machine, rows, [&](int worker, int64_t begin, int64_t end) {
    double* const sum = sums + worker * width;
    for (int64_t row = begin; row < end; ++row) {
      std::fill_n(sum, width, 0.0);
      for (int64_t at = begins[row]; at < begins[row + 1]; ++at) {
        const float* const dy = call.in(0) + places[at] * width;
        for (int64_t i = 0; i < width; ++i) sum[i] += static_cast<double>(dy[i]);
      }
      Store(call, sum, width, call.out(0) + row * width);
    }
  });
  if (call.outputs.size() > 1) PositionGradient(call, width, sums);
  return absl::OkStatus();
}

}  // namespace runnel::fp32
