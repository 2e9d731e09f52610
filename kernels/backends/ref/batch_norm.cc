#include <cmath>

#include "kernels/backends/ref/channels.h"
#include "kernels/backends/ref/ref_kernels.h"

namespace runnel::ref {
// The running statistics take the unrounded mean and variance; normalising, like the backward, uses
// stats as they are stored, rounded to float.
absl::Status BatchNormForward(const Call& call) {
  const Channels s(call.in_shape(0));
  const OpSpec& op = call.attributes();
  const float* x = call.in(0);
  float* y = call.out(0);
  float* stats = call.out(1);
  const bool by_running = host::NormsByRunning(call.instruction(), call.in_shape(0));
  for (int64_t c = 0; c < s.channels; ++c) {
    double sum = 0, squares = 0;
    s.ForEach(c, [&](int64_t i) { sum += x[i]; });
    const double mean = by_running ? call.out(2)[c] : sum / s.count();
    s.ForEach(c, [&](int64_t i) { squares += (x[i] - mean) * (x[i] - mean); });
    const double variance = by_running ? call.out(3)[c] : squares / s.count();
    const double unbiased = s.count() > 1 ? squares / (s.count() - 1) : variance;
    stats[c] = static_cast<float>(mean);
    stats[s.channels + c] = static_cast<float>(1 / std::sqrt(variance + op.epsilon));
    const double shift_by = stats[c], scale_by = stats[s.channels + c];
    const double scale = call.in(1)[c], shift = call.in(2)[c];
    s.ForEach(c, [&](int64_t i) {
      y[i] = static_cast<float>((x[i] - shift_by) * scale_by * scale + shift);
    });
    if (by_running) continue;
    float& running_mean = call.out(2)[c];
    float& running_var = call.out(3)[c];
    running_mean = static_cast<float>((1 - op.momentum) * running_mean + op.momentum * mean);
    running_var = static_cast<float>((1 - op.momentum) * running_var + op.momentum * unbiased);
  }
  return absl::OkStatus();
}

absl::Status BatchNormEval(const Call& call) {
  const Channels s(call.in_shape(0));
  const float* x = call.in(0);
  float* y = call.out(0);
  for (int64_t c = 0; c < s.channels; ++c) {
    const double scale = call.in(1)[c], shift = call.in(2)[c], mean = call.in(3)[c];
    const double scale_by = 1 / std::sqrt(call.in(4)[c] + call.attributes().epsilon);
    s.ForEach(
        c, [&](int64_t i) { y[i] = static_cast<float>((x[i] - mean) * scale_by * scale + shift); });
  }
  return absl::OkStatus();
}

absl::Status BatchNormAgain(const Call& call) {
  const Channels s(call.in_shape(0));
  const float* x = call.in(0);
  float* y = call.out(0);
  for (int64_t c = 0; c < s.channels; ++c) {
    const double scale = call.in(1)[c], shift = call.in(2)[c];
    const double shift_by = call.in(3)[c], scale_by = call.in(3)[s.channels + c];
    s.ForEach(c, [&](int64_t i) {
      y[i] = static_cast<float>((x[i] - shift_by) * scale_by * scale + shift);
    });
  }
  return absl::OkStatus();
}

// With u = (x - mean) * inv_std: dshift = sum dy, dscale = sum dy * u,
// dx = scale * inv_std * (dy - dshift / n - u * dscale / n).
absl::Status BatchNormInputGradient(const Call& call) {
  const Channels s(call.in_shape(0));
  const float* dy = call.in(0);
  const float* x = call.in(1);
  const float* stats = call.in(3);
  float* dx = call.out(0);
  const bool by_running = host::NormsByRunning(call.instruction(), call.in_shape(0));
  for (int64_t c = 0; c < s.channels; ++c) {
    const double mean = stats[c], inv_std = stats[s.channels + c];
    double dscale = 0, dshift = 0;
    s.ForEach(c, [&](int64_t i) {
      dshift += dy[i];
      dscale += dy[i] * ((x[i] - mean) * inv_std);
    });
    const double factor = call.in(2)[c] * inv_std;
    s.ForEach(c, [&](int64_t i) {
      const double u = (x[i] - mean) * inv_std;
      const double centred =
          by_running ? dy[i] : dy[i] - dshift / s.count() - u * (dscale / s.count());
      dx[i] = static_cast<float>(factor * centred);
    });
    call.out(1)[c] = static_cast<float>(dscale);
    call.out(1)[s.channels + c] = static_cast<float>(dshift);
  }
  return absl::OkStatus();
}

absl::Status BatchNormWeightGradient(const Call& call) {
  const int64_t channels = call.out_shape(0)[0];
  for (int64_t c = 0; c < channels; ++c) {
    StoreGradient(call, call.in(0)[c], call.out(0) + c);
    StoreGradient(call, call.in(0)[channels + c], call.out(1) + c);
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
