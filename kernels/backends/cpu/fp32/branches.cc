// Gates, and where branches of a network meet.

#include <algorithm>

#include "kernels/backends/cpu/fp32/elementwise.h"
#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/ir/arithmetic/branch_math.h"

namespace runnel::fp32 {
namespace {

branch::Planes PlanesOf(const Call& call, const Shape& shape) {
  const int64_t positions = shape.elements() / shape[0] / shape[1];
  return {shape[0], shape[1], positions, call.channels_last && shape.rank() > 2};
}

// `planes` with the samples begin to end; body(planes of them, first sample).
template <typename Body>
absl::Status OverSamples(const Call& call, branch::Planes planes, const Body& body) {
  const int64_t samples = planes.samples;
  ParallelFor(call.machine, samples, [&](int, int64_t begin, int64_t end) {
    branch::Planes part = planes;
    part.samples = end - begin;
    body(part, begin);
  });
  return absl::OkStatus();
}

absl::Status ElementProducts(const Call& call) {
  return OverElements(call, [&](int64_t at, int64_t count) {
    const float *const a = call.in(0) + at, *const b = call.in(1) + at;
    float* const y = call.out(0) + at;
    for (int64_t i = 0; i < count; ++i) y[i] = a[i] * b[i];
  });
}

absl::Status Channels(const Call& call, bool last) {
  const int64_t from = call.in_shape(0)[1], to = call.out_shape(0)[1];
  const branch::Planes planes = PlanesOf(call, call.out_shape(0));
  return OverSamples(call, planes, [&](const branch::Planes& part, int64_t sample) {
    branch::CopyChannels(call.in(0) + sample * from * planes.positions, from, last ? from - to : 0,
                         part, to, call.out(0) + sample * to * planes.positions, to, 0);
  });
}

absl::Status Shuffle(const Call& call, int64_t groups) {
  const branch::Planes planes = PlanesOf(call, call.in_shape(0));
  return OverSamples(call, planes, [&](const branch::Planes& part, int64_t sample) {
    const int64_t at = sample * planes.channels * planes.positions;
    branch::ShuffleChannels(call.in(0) + at, part, groups, call.out(0) + at);
  });
}

}  // namespace

absl::Status SigmoidForward(Calls calls) { return Unary(calls[0], calls[0].kernels().sigmoid); }

absl::Status SigmoidInputGradient(Calls calls) {
  return OverElements(calls[0], [&](int64_t at, int64_t count) {
    const float *const dy = calls[0].in(0) + at, *const y = calls[0].in(1) + at;
    float* const dx = calls[0].out(0) + at;
    for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * (y[i] * (1.0f - y[i]));
  });
}

absl::Status HardSigmoidForward(Calls calls) {
  return OverElements(calls[0], [&](int64_t at, int64_t count) {
    for (int64_t i = at; i < at + count; ++i)
      calls[0].out(0)[i] = branch::HardSigmoid(calls[0].in(0)[i]);
  });
}

absl::Status HardSigmoidInputGradient(Calls calls) {
  return OverElements(calls[0], [&](int64_t at, int64_t count) {
    for (int64_t i = at; i < at + count; ++i)
      calls[0].out(0)[i] = calls[0].in(0)[i] * branch::HardSigmoidSlope(calls[0].in(1)[i]);
  });
}

absl::Status LeakyReluForward(Calls calls) {
  const auto slope = static_cast<float>(calls[0].instruction->attributes.rate);
  return OverElements(calls[0], [&](int64_t at, int64_t count) {
    const float* const x = calls[0].in(0) + at;
    float* const y = calls[0].out(0) + at;
    for (int64_t i = 0; i < count; ++i) y[i] = x[i] > 0 ? x[i] : x[i] * slope;
  });
}

absl::Status LeakyReluInputGradient(Calls calls) {
  const auto slope = static_cast<float>(calls[0].instruction->attributes.rate);
  return OverElements(calls[0], [&](int64_t at, int64_t count) {
    const float *const dy = calls[0].in(0) + at, *const y = calls[0].in(1) + at;
    float* const dx = calls[0].out(0) + at;
    for (int64_t i = 0; i < count; ++i) dx[i] = y[i] > 0 ? dy[i] : dy[i] * slope;
  });
}

absl::Status Multiply(Calls calls) {
  const Call& call = calls[0];
  if (call.in_shape(0) == call.in_shape(1)) return ElementProducts(call);
  const branch::Planes planes = PlanesOf(call, call.in_shape(0));
  return OverSamples(call, planes, [&](const branch::Planes& part, int64_t sample) {
    const int64_t at = sample * planes.channels * planes.positions;
    branch::MultiplyChannels(call.in(0) + at, call.in(1) + sample * planes.channels, part,
                             call.out(0) + at);
  });
}

absl::Status FactorGradient(Calls calls) {
  const Call& call = calls[0];
  if (call.in_shape(0) == call.out_shape(0)) return ElementProducts(call);
  const branch::Planes planes = PlanesOf(call, call.in_shape(0));
  return OverSamples(call, planes, [&](const branch::Planes& part, int64_t sample) {
    const int64_t at = sample * planes.channels * planes.positions;
    branch::SumProducts(call.in(0) + at, call.in(1) + at, part,
                        call.out(0) + sample * planes.channels);
  });
}

absl::Status ConcatForward(Calls calls) {
  const Call& call = calls[0];
  const int64_t a = call.in_shape(0)[1], b = call.in_shape(1)[1];
  const branch::Planes planes = PlanesOf(call, call.out_shape(0));
  return OverSamples(call, planes, [&](const branch::Planes& part, int64_t sample) {
    const int64_t at = sample * planes.positions;
    float* const y = call.out(0) + at * (a + b);
    branch::CopyChannels(call.in(0) + at * a, a, 0, part, a, y, a + b, 0);
    branch::CopyChannels(call.in(1) + at * b, b, 0, part, b, y, a + b, a);
  });
}

absl::Status FirstChannels(Calls calls) { return Channels(calls[0], /*last=*/false); }
absl::Status LastChannels(Calls calls) { return Channels(calls[0], /*last=*/true); }

absl::Status SliceForward(Calls calls) {
  const Call& call = calls[0];
  const int64_t from = call.in_shape(0)[1], to = call.out_shape(0)[1];
  const branch::Planes planes = PlanesOf(call, call.out_shape(0));
  return OverSamples(call, planes, [&](const branch::Planes& part, int64_t sample) {
    branch::CopyChannels(call.in(0) + sample * from * planes.positions, from,
                         call.instruction->attributes.begin, part, to,
                         call.out(0) + sample * to * planes.positions, to, 0);
  });
}

absl::Status SliceInputGradient(Calls calls) {
  const Call& call = calls[0];
  const int64_t from = call.in_shape(0)[1], to = call.out_shape(0)[1];
  const branch::Planes planes = PlanesOf(call, call.in_shape(0));
  return OverSamples(call, planes, [&](const branch::Planes& part, int64_t sample) {
    float* const dx = call.out(0) + sample * to * planes.positions;
    std::fill_n(dx, part.samples * to * planes.positions, 0.0f);
    branch::CopyChannels(call.in(0) + sample * from * planes.positions, from, 0, part, from, dx, to,
                         call.instruction->attributes.begin);
  });
}

absl::Status ShuffleForward(Calls calls) {
  return Shuffle(calls[0], calls[0].instruction->attributes.groups);
}
// Groups of as many channels as there were groups.
absl::Status ShuffleInputGradient(Calls calls) {
  return Shuffle(calls[0], calls[0].in_shape(0)[1] / calls[0].instruction->attributes.groups);
}

}  // namespace runnel::fp32
