#include "kernels/backends/host/plain_kernels.h"

#include <cstring>

#include "proto/base/random.h"

namespace runnel::host {

absl::Status Dropout(const Call& call) {
  const double rate = call.attributes().rate;
  const float scale = static_cast<float>(1 / (1 - rate));
  const CounterRandom random(call.context.run_seed, RandomPurpose::kDropout,
                             static_cast<uint64_t>(call.layer()) * kMaxOpsPerLayer + call.op(),
                             static_cast<uint64_t>(call.context.sequence.value()));
  const float* x = call.in(0);
  float* y = call.out(0);
  const auto elements = static_cast<uint64_t>(call.out_shape(0).elements());
  for (uint64_t i = 0; i < elements; ++i) y[i] = random.Uniform(i) >= rate ? x[i] * scale : 0.0f;
  return absl::OkStatus();
}

absl::Status Copy(const Call& call) {
  std::memcpy(call.out<std::byte>(0), call.in<std::byte>(0), call.out_bytes(0));
  return absl::OkStatus();
}

}  // namespace runnel::host
