// Gates, and where branches of a network meet, on row-major tensors.

#include <algorithm>

#include "kernels/backends/host/plain_kernels.h"
#include "kernels/ir/arithmetic/branch_math.h"
#include "kernels/ir/arithmetic/transformer_math.h"

namespace runnel::host {
namespace {

struct Plain {};  // one float at a time

branch::Planes PlanesOf(const Shape& shape) {
  return {shape[0], shape[1], shape.elements() / shape[0] / shape[1]};
}

// One value after the other; `map` of the input, or of dy and y.
template <typename Map>
absl::Status Each(const Call& call, const Map& map) {
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) call.out(0)[i] = map(i);
  return absl::OkStatus();
}

absl::Status Channels(const Call& call, bool last) {
  const Shape &dy = call.in_shape(0), &dx = call.out_shape(0);
  branch::CopyChannels(call.in(0), dy[1], last ? dy[1] - dx[1] : 0, PlanesOf(dx), dx[1],
                       call.out(0), dx[1], 0);
  return absl::OkStatus();
}

}  // namespace

absl::Status SigmoidForward(const Call& call) {
  return Each(call, [&](int64_t i) { return transformer::SigmoidOf<Plain>(call.in(0)[i]); });
}

absl::Status SigmoidInputGradient(const Call& call) {
  return Each(call, [&](int64_t i) {
    const float y = call.in(1)[i];
    return call.in(0)[i] * (y * (1.0f - y));
  });
}

absl::Status HardSigmoidForward(const Call& call) {
  return Each(call, [&](int64_t i) { return branch::HardSigmoid(call.in(0)[i]); });
}

absl::Status HardSigmoidInputGradient(const Call& call) {
  return Each(call,
              [&](int64_t i) { return call.in(0)[i] * branch::HardSigmoidSlope(call.in(1)[i]); });
}

absl::Status LeakyReluForward(const Call& call) {
  const auto slope = static_cast<float>(call.attributes().rate);
  return Each(call, [&](int64_t i) {
    const float x = call.in(0)[i];
    return x > 0 ? x : x * slope;
  });
}

absl::Status LeakyReluInputGradient(const Call& call) {
  const auto slope = static_cast<float>(call.attributes().rate);
  return Each(call, [&](int64_t i) {
    const float dy = call.in(0)[i];
    return call.in(1)[i] > 0 ? dy : dy * slope;
  });
}

absl::Status Multiply(const Call& call) {
  if (call.in_shape(0) == call.in_shape(1))
    return Each(call, [&](int64_t i) { return call.in(0)[i] * call.in(1)[i]; });
  branch::MultiplyChannels(call.in(0), call.in(1), PlanesOf(call.in_shape(0)), call.out(0));
  return absl::OkStatus();
}

absl::Status FactorGradient(const Call& call) {
  if (call.in_shape(0) == call.out_shape(0))
    return Each(call, [&](int64_t i) { return call.in(0)[i] * call.in(1)[i]; });
  branch::SumProducts(call.in(0), call.in(1), PlanesOf(call.in_shape(0)), call.out(0));
  return absl::OkStatus();
}

absl::Status ConcatForward(const Call& call) {
  const int64_t a = call.in_shape(0)[1], b = call.in_shape(1)[1];
  const branch::Planes planes = PlanesOf(call.out_shape(0));
  branch::CopyChannels(call.in(0), a, 0, planes, a, call.out(0), a + b, 0);
  branch::CopyChannels(call.in(1), b, 0, planes, b, call.out(0), a + b, a);
  return absl::OkStatus();
}

absl::Status FirstChannels(const Call& call) { return Channels(call, /*last=*/false); }
absl::Status LastChannels(const Call& call) { return Channels(call, /*last=*/true); }

absl::Status SliceForward(const Call& call) {
  const Shape &x = call.in_shape(0), &y = call.out_shape(0);
  branch::CopyChannels(call.in(0), x[1], call.attributes().begin, PlanesOf(y), y[1], call.out(0),
                       y[1], 0);
  return absl::OkStatus();
}

absl::Status SliceInputGradient(const Call& call) {
  const Shape &dy = call.in_shape(0), &dx = call.out_shape(0);
  std::fill_n(call.out(0), dx.elements(), 0.0f);
  branch::CopyChannels(call.in(0), dy[1], 0, PlanesOf(dy), dy[1], call.out(0), dx[1],
                       call.attributes().begin);
  return absl::OkStatus();
}

absl::Status ShuffleForward(const Call& call) {
  branch::ShuffleChannels(call.in(0), PlanesOf(call.in_shape(0)), call.attributes().groups,
                          call.out(0));
  return absl::OkStatus();
}

// Groups of as many channels as there were groups.
absl::Status ShuffleInputGradient(const Call& call) {
  branch::ShuffleChannels(call.in(0), PlanesOf(call.in_shape(0)),
                          call.in_shape(0)[1] / call.attributes().groups, call.out(0));
  return absl::OkStatus();
}

}  // namespace runnel::host
