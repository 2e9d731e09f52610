#include "kernels/backends/small/plane_kernels.h"

#include <vector>

#include "kernels/backends/small/primitives/depthwise.h"

namespace runnel::small {
namespace {

using host::Call;

Plane PlaneOf(const host::Image& image) {
  return {1, static_cast<int32_t>(image.h), static_cast<int32_t>(image.w)};
}

// Average pools have no padding, whatever their attributes say; `whole`: one window.
struct Planes {
  Pool pool;
  int64_t count = 0;
};
Planes PlanesOf(const Call& call, const Shape& x, const Shape& y, bool whole) {
  const host::Image in = host::ImageOf(x);
  Planes planes;
  planes.count = in.n * in.c;
  Conv& conv = planes.pool.window;
  conv.in = PlaneOf(in);
  if (whole) {
    conv.out = {1, 1, 1};
    conv.kh = conv.in.h;
    conv.kw = conv.in.w;
    return planes;
  }
  conv.out = PlaneOf(host::ImageOf(y));
  const host::Window window = host::WindowOf(call.attributes(), x);
  conv.kh = static_cast<int32_t>(window.kh);
  conv.kw = static_cast<int32_t>(window.kw);
  conv.stride_h = static_cast<int32_t>(window.sh);
  conv.stride_w = static_cast<int32_t>(window.sw);
  if (call.attributes().kind != OpKind::kAvgPool) {
    conv.pad_h = static_cast<int32_t>(window.ph);
    conv.pad_w = static_cast<int32_t>(window.pw);
  }
  return planes;
}

absl::Status Average(const Call& call, bool whole) {
  const Planes planes = PlanesOf(call, call.in_shape(0), call.out_shape(0), whole);
  const Conv& c = planes.pool.window;
  for (int64_t p = 0; p < planes.count; ++p)
    AveragePool(planes.pool, call.in(0) + p * c.in.positions(),
                call.out(0) + p * c.out.positions());
  return absl::OkStatus();
}

absl::Status AverageGradient(const Call& call, bool whole) {
  const Planes planes = PlanesOf(call, call.out_shape(0), call.in_shape(0), whole);
  const Conv& c = planes.pool.window;
  std::vector<double> sums(static_cast<size_t>(c.in.positions()));
  for (int64_t p = 0; p < planes.count; ++p)
    AveragePoolGradient(planes.pool, call.in(0) + p * c.out.positions(), sums.data(),
                        call.out(0) + p * c.in.positions());
  return absl::OkStatus();
}

// Calls body(channel, its elements, where they begin) for each channel.
template <typename Body>
void ForChannels(const Shape& shape, const Body& body) {
  const int64_t channels = shape[1], inner = shape.elements() / (shape[0] * channels);
  const Channel channel = {shape[0], inner, channels * inner};
  for (int64_t c = 0; c < channels; ++c) body(c, channel, c * inner);
}

}  // namespace

absl::Status MaxPoolForward(const Call& call) {
  const Planes planes = PlanesOf(call, call.in_shape(0), call.out_shape(0), false);
  const Conv& c = planes.pool.window;
  for (int64_t p = 0; p < planes.count; ++p) {
    uint8_t* taps = call.has_output(1) ? call.out<uint8_t>(1) + p * c.out.positions() : nullptr;
    MaxPool(planes.pool, call.in(0) + p * c.in.positions(), call.out(0) + p * c.out.positions(),
            taps);
  }
  return absl::OkStatus();
}

absl::Status MaxPoolInputGradient(const Call& call) {
  const Planes planes = PlanesOf(call, call.out_shape(0), call.in_shape(0), false);
  const Conv& c = planes.pool.window;
  std::vector<double> sums(static_cast<size_t>(c.in.positions()));
  for (int64_t p = 0; p < planes.count; ++p)
    MaxPoolGradient(planes.pool, call.in(0) + p * c.out.positions(),
                    call.in<uint8_t>(1) + p * c.out.positions(), sums.data(),
                    call.out(0) + p * c.in.positions());
  return absl::OkStatus();
}

absl::Status AvgPoolForward(const Call& call) { return Average(call, false); }
absl::Status AvgPoolInputGradient(const Call& call) { return AverageGradient(call, false); }
absl::Status GlobalAvgPoolForward(const Call& call) { return Average(call, true); }
absl::Status GlobalAvgPoolInputGradient(const Call& call) { return AverageGradient(call, true); }

// The running statistics take the unrounded moments; what normalises is rounded to FP32.
absl::Status BatchNormForward(const Call& call) {
  const OpSpec& op = call.attributes();
  const int64_t channels = call.in_shape(0)[1];
  float* stats = call.out(1);
  ForChannels(call.in_shape(0), [&](int64_t c, const Channel& channel, int64_t begin) {
    const Moments moments = MomentsOf(channel, call.in(0) + begin);
    stats[c] = static_cast<float>(moments.mean);
    stats[channels + c] = static_cast<float>(InverseDeviation(moments.variance, op.epsilon));
    Normalize(channel, call.in(0) + begin, stats[c], stats[channels + c], call.in(1)[c],
              call.in(2)[c], call.out(0) + begin);
    float& mean = call.out(2)[c];
    float& variance = call.out(3)[c];
    mean = static_cast<float>((1 - op.momentum) * mean + op.momentum * moments.mean);
    variance = static_cast<float>((1 - op.momentum) * variance + op.momentum * moments.unbiased);
  });
  return absl::OkStatus();
}

absl::Status BatchNormEval(const Call& call) {
  ForChannels(call.in_shape(0), [&](int64_t c, const Channel& channel, int64_t begin) {
    Normalize(channel, call.in(0) + begin, call.in(3)[c],
              InverseDeviation(call.in(4)[c], call.attributes().epsilon), call.in(1)[c],
              call.in(2)[c], call.out(0) + begin);
  });
  return absl::OkStatus();
}

absl::Status BatchNormAgain(const Call& call) {
  const int64_t channels = call.in_shape(0)[1];
  ForChannels(call.in_shape(0), [&](int64_t c, const Channel& channel, int64_t begin) {
    Normalize(channel, call.in(0) + begin, call.in(3)[c], call.in(3)[channels + c], call.in(1)[c],
              call.in(2)[c], call.out(0) + begin);
  });
  return absl::OkStatus();
}

absl::Status BatchNormInputGradient(const Call& call) {
  const int64_t channels = call.in_shape(0)[1];
  const float* stats = call.in(3);
  ForChannels(call.in_shape(0), [&](int64_t c, const Channel& channel, int64_t begin) {
    const NormGradient sums =
        NormalizeGradient(channel, call.in(0) + begin, call.in(1) + begin, stats[c],
                          stats[channels + c], call.in(2)[c], call.out(0) + begin);
    call.out(1)[c] = static_cast<float>(sums.scale);
    call.out(1)[channels + c] = static_cast<float>(sums.shift);
  });
  return absl::OkStatus();
}

absl::Status BatchNormWeightGradient(const Call& call) {
  const int64_t channels = call.out_shape(0)[0];
  for (size_t output = 0; output < 2; ++output) {
    for (int64_t c = 0; c < channels; ++c) {
      const float gradient = call.in(0)[static_cast<int64_t>(output) * channels + c];
      float& place = call.out(output)[c];
      place = call.adds() ? place + gradient : gradient;
    }
  }
  return absl::OkStatus();
}

}  // namespace runnel::small
