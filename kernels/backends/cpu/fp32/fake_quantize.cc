// Fake quantisation. Activations and errors: any layout, all operands alike. Errors are drawn in
// the logical (N, C, spatial) order, whatever the layout.

#include "kernels/ir/arithmetic/fake_quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/backends/cpu/fp32/error_draws.h"
#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/cpu/fp32/packing.h"

namespace runnel::fp32 {
namespace {

constexpr int64_t kChunk = 1 << 14;  // elements of one partial result, and of one thread at least

int64_t ChunksOf(int64_t count) { return (count + kChunk - 1) / kChunk; }

// body(chunk, begin, size) of each chunk of `count` elements.
template <typename Body>
void OverChunks(const Call& call, int64_t count, const Body& body) {
  ParallelFor(call.machine, ChunksOf(count), [&](int, int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const int64_t begin = chunk * kChunk;
      body(chunk, begin, std::min(count - begin, kChunk));
    }
  });
}

// The sum of a partial result of each chunk, in their order.
template <typename Part>
double SumOverChunks(const Call& call, int64_t count, const Part& part) {
  double* parts = call.Take<double>(ChunksOf(count));
  OverChunks(call, count,
             [&](int64_t chunk, int64_t at, int64_t size) { parts[chunk] = part(at, size); });
  double sum = 0;
  for (int64_t chunk = 0; chunk < ChunksOf(count); ++chunk) sum += parts[chunk];
  return sum;
}

// max|x|; NaN if there is one.
float MaxAbs(const Call& call, const float* x, int64_t count) {
  uint32_t* parts = call.Take<uint32_t>(ChunksOf(count));
  OverChunks(call, count, [&](int64_t chunk, int64_t at, int64_t size) {
    parts[chunk] = call.kernels().max_magnitude(x + at, size);
  });
  return std::bit_cast<float>(*std::max_element(parts, parts + ChunksOf(count)));
}

// 1 / T; 0 where all weights are.
double InverseOf(float max_abs) {
  return max_abs == 0 ? 0 : 1 / std::tanh(static_cast<double>(max_abs));
}

// The share of the gradient that goes through T, of the first weight that makes T.
void AddThroughLargest(const Call& call, float max_abs, double sum) {
  const int64_t count = call.in_shape(1).elements();
  const float* w = call.in(1);
  const float* end = w + count;
  const float* at = std::find_if(w, end, [&](float x) { return std::abs(x) == max_abs; });
  if (at == end) return;  // NaN
  const double inverse = InverseOf(max_abs), t = std::tanh(static_cast<double>(*at));
  const double through = sum * inverse * inverse * (1 - t * t);
  float& dw = call.out(0)[at - w];
  dw = static_cast<float>(dw - (t < 0 ? -through : through));
}

void TanhGradientOf(const Call& call) {
  const int64_t count = call.in_shape(1).elements();
  const float max_abs = MaxAbs(call, call.in(1), count);
  const double sum = SumOverChunks(call, count, [&](int64_t at, int64_t size) {
    return call.kernels().tanh_product_sum(call.in(0) + at, call.in(1) + at, size);
  });
  const auto inverse = static_cast<float>(InverseOf(max_abs));
  OverChunks(call, count, [&](int64_t, int64_t at, int64_t size) {
    call.kernels().tanh_gradient(call.in(0) + at, call.in(1) + at, size, inverse,
                                 call.context->accumulate, call.out(0) + at);
  });
  AddThroughLargest(call, max_abs, sum);
}

}  // namespace

absl::Status FakeQuantizeWeight(Calls calls) {
  const Call& call = calls[0];
  const GridRule& grid = call.instruction->grid;
  const int64_t count = call.in_shape(0).elements();
  const float* w = call.in(0);
  float* v = call.out(0);
  if (grid.weights == WeightGrid::kSignMean) {
    const double sum = SumOverChunks(call, count, [&](int64_t at, int64_t size) {
      return call.kernels().magnitude_sum(w + at, size);
    });
    const auto mean = static_cast<float>(sum / static_cast<double>(count));
    std::transform(w, w + count, v, [mean](float x) { return x < 0 ? -mean : mean; });
    return absl::OkStatus();
  }
  const auto half_inverse = static_cast<float>(InverseOf(MaxAbs(call, w, count)) / 2);
  OverChunks(call, count, [&](int64_t, int64_t at, int64_t size) {
    call.kernels().tanh_grid(w + at, size, half_inverse,
                             GridSteps(grid.BitsAt(call.context->grid_bits)), v + at);
  });
  return absl::OkStatus();
}

absl::Status FakeQuantizeWeightGradient(Calls calls) {
  const Call& call = calls[0];
  const GridRule& grid = call.instruction->grid;
  if (grid.bits < 32 && grid.weights == WeightGrid::kTanhMax) {
    TanhGradientOf(call);
  } else {
    StoreGradient(call.kernels(), call.in(0), call.in_shape(1).elements(), call.context->accumulate,
                  call.out(0));
  }
  return absl::OkStatus();
}

absl::Status FakeQuantizeActivation(Calls calls) {
  const Call& call = calls[0];
  const int steps = GridSteps(call.instruction->grid.BitsAt(call.context->grid_bits));
  OverChunks(call, call.out_shape(0).elements(), [&](int64_t, int64_t at, int64_t size) {
    call.kernels().unit_grid(call.in(0) + at, size, steps, call.out(0) + at);
  });
  return absl::OkStatus();
}

absl::Status FakeQuantizeActivationGradient(Calls calls) {
  const Call& call = calls[0];
  OverChunks(call, call.out_shape(0).elements(), [&](int64_t, int64_t at, int64_t size) {
    call.kernels().unit_gradient(call.in(0) + at, call.in(1) + at, size, call.out(0) + at);
  });
  return absl::OkStatus();
}

absl::Status FakeQuantizeError(Calls calls) {
  const Call& call = calls[0];
  const int bits = call.instruction->grid.BitsAt(call.context->grid_bits);
  OverSampleDraws(call, [&](int, int64_t at, int64_t size, const uint32_t* draw) {
    const float* dy = call.in(0) + at;
    float* out = call.out(0) + at;
    const float max_abs = std::bit_cast<float>(call.kernels().max_magnitude(dy, size));
    const ErrorGrid grid = ErrorGridOf(max_abs, bits);
    if (grid.used) {
      call.kernels().error_grid(dy, draw, size, grid, out);
    } else {
      std::memmove(out, dy, static_cast<size_t>(size) * sizeof(float));
    }
  });
  return absl::OkStatus();
}

}  // namespace runnel::fp32
