#include "kernels/backends/mixed/home_memory.h"

#include <utility>

#include "proto/base/status_macros.h"

namespace runnel {

class HomeMemory final : public Memory {
 public:
  HomeMemory(std::unique_ptr<Memory> memory, std::shared_ptr<HomeVersions> versions)
      : memory_(std::move(memory)), versions_(std::move(versions)) {
    versions_->Add(address());
  }
  ~HomeMemory() override { versions_->Remove(address()); }

  int64_t bytes() const override { return memory_->bytes(); }
  std::byte* address() const override { return memory_->address(); }
  absl::StatusOr<std::byte*> Map(MapAccess access) override {
    if (access == MapAccess::kReadWrite) versions_->Renew(address());
    return memory_->Map(access);
  }
  void Unmap() override { memory_->Unmap(); }

 private:
  const std::unique_ptr<Memory> memory_;
  const std::shared_ptr<HomeVersions> versions_;
};

uint64_t HomeVersions::VersionOf(const std::byte* at) const {
  const std::lock_guard lock(mutex_);
  const auto found = versions_.find(at);
  return found == versions_.end() ? 0 : found->second;
}

void HomeVersions::Renew(const std::byte* at) {
  const std::lock_guard lock(mutex_);
  const auto found = versions_.find(at);
  if (found != versions_.end()) found->second = ++last_;
}

bool HomeVersions::BeginBackward(const std::byte* gradients) {
  const std::lock_guard lock(mutex_);
  return backwards_[gradients]++ == 0;
}

void HomeVersions::EndBackward(const std::byte* gradients) {
  const std::lock_guard lock(mutex_);
  const auto found = backwards_.find(gradients);
  if (found != backwards_.end() && --found->second == 0) backwards_.erase(found);
}

void HomeVersions::Add(const std::byte* at) {
  const std::lock_guard lock(mutex_);
  versions_[at] = ++last_;
}

void HomeVersions::Remove(const std::byte* at) {
  const std::lock_guard lock(mutex_);
  versions_.erase(at);
}

absl::StatusOr<std::unique_ptr<Memory>> AllocateHome(Backend& host,
                                                     std::shared_ptr<HomeVersions> versions,
                                                     int64_t bytes) {
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> memory, host.Allocate(bytes));
  return std::make_unique<HomeMemory>(std::move(memory), std::move(versions));
}

}  // namespace runnel
