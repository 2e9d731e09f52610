// Batch norm on fixed points (the kFixedNorm codes of kernels/ir/op_traits.inc) in plain loops.

#include "kernels/backends/host/fixed_norm.h"

#include "kernels/backends/ref/channels.h"
#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/fixed_point.h"

namespace runnel::ref {
namespace {

host::FixedMoments MomentsOf(const Shape& shape, int64_t channel, const float* x) {
  const double count = static_cast<double>(shape.elements() / shape[1]);
  double sum = 0, squares = 0;
  Channels(shape).ForEach(channel, [&](int64_t i) { sum += x[i]; });
  const double mean = sum / count;
  Channels(shape).ForEach(channel, [&](int64_t i) { squares += (x[i] - mean) * (x[i] - mean); });
  return {mean, squares / count};
}

void Normalise(int bits, const Shape& shape, int64_t channel, const float* x,
               const host::FixedChannel& by, float* y) {
  Channels(shape).ForEach(channel, [&](int64_t i) {
    const double u = FixedValue((x[i] - by.mean) * by.inverse, bits);
    y[i] = static_cast<float>(by.factor * u + by.added);
  });
}

}  // namespace

absl::Status FixedNormForward(const Call& call) {
  const Shape& shape = call.in_shape(0);
  const host::RangeStatistics statistics = {call.out(1), call.out(2), call.out(3)};
  const float* stats = statistics.stats;
  for (int64_t c = 0; c < shape[1]; ++c) {
    host::FinishFixedStatistics(call.instruction(), shape.elements() / shape[1], shape[1], c,
                                MomentsOf(shape, c, call.in(0)), statistics);
    Normalise(call.grid().bits, shape, c, call.in(0),
              host::FixedChannelOf(stats[c], stats[shape[1] + c], call.in(1)[c], call.in(2)[c]),
              call.out(0));
  }
  return absl::OkStatus();
}

absl::Status FixedNormEval(const Call& call) {
  for (int64_t c = 0; c < call.in_shape(0)[1]; ++c) {
    Normalise(
        call.grid().bits, call.in_shape(0), c, call.in(0),
        host::FixedChannelOfRunning(call.in(3)[c], call.in(4)[c], call.in(1)[c], call.in(2)[c]),
        call.out(0));
  }
  return absl::OkStatus();
}

// dx = Q(scale) / s * (dy - mean dy - u * mean(dy * u)), s taken for the deviation.
absl::Status FixedNormInputGradient(const Call& call) {
  const Shape& shape = call.in_shape(0);
  const int bits = call.grid().bits;
  const float *dy = call.in(0), *x = call.in(1), *stats = call.in(3);
  float *dx = call.out(0), *dscale_dshift = call.out(1);
  const double count = static_cast<double>(shape.elements() / shape[1]);
  for (int64_t c = 0; c < shape[1]; ++c) {
    const double mean = stats[c], inverse = stats[shape[1] + c];
    double sum = 0, product = 0, fixed_product = 0;
    Channels(shape).ForEach(c, [&](int64_t i) {
      const double u = (x[i] - mean) * inverse;
      sum += dy[i];
      product += dy[i] * u;
      fixed_product += dy[i] * FixedValue(u, bits);
    });
    const double factor = host::FixedChannelOf(0, 0, call.in(2)[c], 0).factor * inverse;
    Channels(shape).ForEach(c, [&](int64_t i) {
      const double u = (x[i] - mean) * inverse;
      dx[i] = static_cast<float>(factor * (dy[i] - sum / count - u * (product / count)));
    });
    host::PutFixedGradients(sum, fixed_product, dscale_dshift[c], dscale_dshift[shape[1] + c]);
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
