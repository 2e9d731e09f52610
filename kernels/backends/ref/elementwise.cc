#include <cstring>

#include "kernels/backends/ref/ref_kernels.h"
#include "proto/base/random.h"

namespace runnel::ref {
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

absl::Status Dropout(const Call& call) {
  const double rate = call.attributes().rate;
  const float scale = static_cast<float>(1 / (1 - rate));
  const CounterRandom random(call.context.run_seed, RandomPurpose::kDropout,
                             static_cast<uint64_t>(call.layer()) * kMaxOpsPerLayer + call.op(),
                             static_cast<uint64_t>(call.context.sequence.value()));
  uint64_t element = 0;
  return Map(call, [&](float x) { return random.Uniform(element++) >= rate ? x * scale : 0.0f; });
}

absl::Status Sum(const Call& call) {
  return Map2(call, [](float a, float b) { return a + b; });
}

absl::Status Copy(const Call& call) {
  std::memcpy(call.out<std::byte>(0), call.in<std::byte>(0), call.out_bytes(0));
  return absl::OkStatus();
}

}  // namespace runnel::ref
