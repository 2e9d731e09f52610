#include "kernels/ir/arithmetic/fake_quantize.h"

#include <cmath>

#include "kernels/backends/ref/ref_kernels.h"
#include "proto/base/random.h"

namespace runnel::ref {
namespace {

int BitsOf(const Call& call) { return call.grid().BitsAt(call.context.grid_bits); }

// max |x|; NaN if there is one.
float MaxAbs(const float* x, int64_t count) {
  float result = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(x[i])) return x[i];
    result = std::max(result, std::abs(x[i]));
  }
  return result;
}

double MeanAbs(const float* x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::abs(x[i]);
  return sum / static_cast<double>(count);
}

// dL/dw of v = tanh(w) / T, with T = |tanh| of the first w whose |w| is largest.
void TanhGradient(const Call& call) {
  const float* dv = call.in(0);
  const float* w = call.in(1);
  const int64_t count = call.in_shape(1).elements();
  const float max_abs = MaxAbs(w, count);
  const double largest = std::tanh(static_cast<double>(max_abs));
  const double inverse = largest == 0 ? 0 : 1 / largest;
  double through_largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    through_largest += dv[i] * std::tanh(static_cast<double>(w[i]));
  }
  through_largest *= inverse * inverse;
  bool found = false;
  for (int64_t i = 0; i < count; ++i) {
    const double t = std::tanh(static_cast<double>(w[i]));
    double dt = dv[i] * inverse;
    if (!found && std::abs(w[i]) == max_abs) {
      dt -= t < 0 ? -through_largest : through_largest;
      found = true;
    }
    StoreGradient(call, static_cast<float>(dt * (1 - t * t)), call.out(0) + i);
  }
}

}  // namespace

absl::Status FakeQuantizeWeight(const Call& call) {
  const int64_t count = call.in_shape(0).elements();
  const int steps = GridSteps(BitsOf(call));
  const float* w = call.in(0);
  float* v = call.out(0);
  if (call.grid().weights == WeightGrid::kSignMean) {
    const auto mean = static_cast<float>(MeanAbs(w, count));
    for (int64_t i = 0; i < count; ++i) v[i] = w[i] < 0 ? -mean : mean;
    return absl::OkStatus();
  }
  const double largest = std::tanh(static_cast<double>(MaxAbs(w, count)));
  for (int64_t i = 0; i < count; ++i) {
    v[i] = WeightOfCode(TanhCode(std::tanh(static_cast<double>(w[i])), largest, steps), steps);
  }
  return absl::OkStatus();
}

absl::Status FakeQuantizeWeightGradient(const Call& call) {
  if (call.grid().bits < 32 && call.grid().weights == WeightGrid::kTanhMax) {
    TanhGradient(call);
    return absl::OkStatus();
  }
  for (int64_t i = 0; i < call.in_shape(1).elements(); ++i) {
    StoreGradient(call, call.in(0)[i], call.out(0) + i);
  }
  return absl::OkStatus();
}

absl::Status FakeQuantizeActivation(const Call& call) {
  const int steps = GridSteps(BitsOf(call));
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    call.out(0)[i] = GridActivation(call.in(0)[i], steps);
  }
  return absl::OkStatus();
}

absl::Status FakeQuantizeActivationGradient(const Call& call) {
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const float x = call.in(1)[i];
    call.out(0)[i] = x < 0 || x > 1 ? 0.0f : call.in(0)[i];
  }
  return absl::OkStatus();
}

absl::Status FakeQuantizeError(const Call& call) {
  const CounterRandom random(call.context.run_seed, RandomPurpose::kErrorRounding,
                             static_cast<uint64_t>(call.layer()) * kMaxOpsPerLayer + call.op(),
                             static_cast<uint64_t>(call.context.sequence.value()));
  const int64_t samples = call.out_shape(0)[0];
  const int64_t size = call.out_shape(0).elements() / samples;
  for (int64_t n = 0; n < samples; ++n) {
    const float* dy = call.in(0) + n * size;
    float* out = call.out(0) + n * size;
    const ErrorGrid grid = ErrorGridOf(MaxAbs(dy, size), BitsOf(call));
    for (int64_t i = 0; i < size; ++i) {
      const uint32_t draw = random.Bits(static_cast<uint64_t>(n * size + i)) >> 12;
      out[i] = grid.used ? ErrorOfCode(ErrorCode(dy[i], grid, draw), grid) : dy[i];
    }
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
