#include "kernels/backends/cpu/kept_weights.h"

#include "absl/status/statusor.h"
#include "kernels/backends/host/host_memory.h"

namespace runnel::cpu {

float* KeptWeights::Of(const Buffer& weight, int64_t count, absl::FunctionRef<void(float*)> make) {
  if (weight.storage != Storage::kParameters && weight.storage != Storage::kStatistics)
    return nullptr;
  const auto [at, is_new] = by_place_.try_emplace({weight.storage, weight.offset_bytes});
  Form& form = at->second;
  if (is_new) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
    absl::StatusOr<std::unique_ptr<Memory>> made = AllocateHostMemory(bytes);
    if (made.ok()) {
      form = {count, *std::move(made)};
      bytes_ += bytes;
      make(reinterpret_cast<float*>(form.memory->address()));
    }
  }
  if (form.memory == nullptr || form.count != count) return nullptr;
  return reinterpret_cast<float*>(form.memory->address());
}

std::shared_ptr<KeptWeights> WeightKeeper::Hold(int64_t weights) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (weights != weights_) {
    weights_ = weights;
    kept_ = weights == 0 ? nullptr : std::make_shared<KeptWeights>();
  }
  return kept_;
}

void WeightKeeper::Drop(int64_t weights) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (weights != weights_) return;
  weights_ = 0;
  kept_ = nullptr;
}

}  // namespace runnel::cpu
