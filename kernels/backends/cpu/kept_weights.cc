#include "kernels/backends/cpu/kept_weights.h"

#include "absl/status/statusor.h"
#include "kernels/backends/host/host_memory.h"

namespace runnel::cpu {

float* KeptWeights::Of(const Buffer& weight, int64_t count, absl::FunctionRef<void(float*)> make) {
  if (weight.storage != Storage::kParameters && weight.storage != Storage::kStatistics)
    return nullptr;
  const auto [at, is_new] = by_place_.try_emplace({weight.storage, weight.offset_bytes});
  std::unique_ptr<Memory>& memory = at->second;
  if (is_new) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
    absl::StatusOr<std::unique_ptr<Memory>> made = AllocateHostMemory(bytes);
    if (made.ok()) {
      memory = std::move(*made);
      make(reinterpret_cast<float*>(memory->address()));
    }
  }
  return memory == nullptr ? nullptr : reinterpret_cast<float*>(memory->address());
}

void WeightKeeper::Hold(int64_t weights, std::shared_ptr<KeptWeights>& held) {
  if (weights == 0) {
    held = nullptr;
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  std::weak_ptr<KeptWeights>& known = by_weights_[weights];
  std::shared_ptr<KeptWeights> kept = known.lock();
  if (kept == nullptr) known = kept = std::make_shared<KeptWeights>();
  held = std::move(kept);
  std::erase_if(by_weights_, [](const auto& entry) { return entry.second.expired(); });
}

}  // namespace runnel::cpu
