#include "kernels/backends/host/plain_kernels.h"

namespace runnel::host {
namespace {

template <typename F>
absl::Status Map(const Call& call, const F& f) {
  const int64_t elements = call.out_shape(0).elements();
  const float* x = call.in(0);
  float* y = call.out(0);
  for (int64_t i = 0; i < elements; ++i) y[i] = f(x[i]);
  return absl::OkStatus();
}

template <typename F>
absl::Status Map2(const Call& call, const F& f) {
  const int64_t elements = call.out_shape(0).elements();
  const float* a = call.in(0);
  const float* b = call.in(1);
  float* y = call.out(0);
  for (int64_t i = 0; i < elements; ++i) y[i] = f(a[i], b[i]);
  return absl::OkStatus();
}

}  // namespace

// Written so that NaN fails each comparison and passes.
absl::Status ReluForward(const Call& call) {
  return Map(call, [](float x) { return x <= 0 ? 0.0f : x; });
}

absl::Status Relu6Forward(const Call& call) {
  return Map(call, [](float x) { return x <= 0 ? 0.0f : x >= 6 ? 6.0f : x; });
}

absl::Status ReluInputGradient(const Call& call) {
  return Map2(call, [](float dy, float y) { return y <= 0 ? 0.0f : dy; });
}

absl::Status Relu6InputGradient(const Call& call) {
  return Map2(call, [](float dy, float y) { return y <= 0 || y >= 6 ? 0.0f : dy; });
}

namespace {

template <typename Passes>
absl::Status StoreMask(const Call& call, const Passes& passes) {
  auto* mask = call.out<uint8_t>(0);
  std::fill_n(mask, call.out_shape(0).elements(), uint8_t{0});
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) {
    const int bit = passes(call.in(0)[i]) ? 1 : 0;
    mask[i / 8] = static_cast<uint8_t>(mask[i / 8] | bit << i % 8);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReluMask(const Call& call) {
  return StoreMask(call, [](float y) { return !(y <= 0); });
}

absl::Status Relu6Mask(const Call& call) {
  return StoreMask(call, [](float y) { return !(y <= 0 || y >= 6); });
}

absl::Status MaskedInputGradient(const Call& call) {
  const auto* mask = call.in<uint8_t>(1);
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i)
    call.out(0)[i] = (mask[i / 8] >> i % 8 & 1) != 0 ? call.in(0)[i] : 0.0f;
  return absl::OkStatus();
}

absl::Status Sum(const Call& call) {
  return Map2(call, [](float a, float b) { return a + b; });
}

}  // namespace runnel::host
