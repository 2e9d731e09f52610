#pragma once

// The state of a stage on several processors: it lies in the host's memory, and the others keep
// copies of weights as long as these stay the same.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"

namespace runnel {

// Any thread.
class HomeVersions {
 public:
  // A number that the area which begins at `at` has had since its bytes may last have changed; 0
  // for an address that no area begins at.
  uint64_t VersionOf(const std::byte* at) const;
  // The area's bytes change. Nothing happens to addresses of no area.
  void Renew(const std::byte* at);

  // Micro-batches between their input-gradient and their weight-gradient, by where their gradients
  // are added up. BeginBackward: whether there was none.
  bool BeginBackward(const std::byte* gradients);
  void EndBackward(const std::byte* gradients);

 private:
  friend class HomeMemory;
  void Add(const std::byte* at);
  void Remove(const std::byte* at);

  mutable std::mutex mutex_;
  std::map<const std::byte*, uint64_t> versions_;
  uint64_t last_ = 0;
  std::map<const std::byte*, int> backwards_;
};

// An area of `host`, whose memory the host addresses. Errors as Backend::Allocate.
absl::StatusOr<std::unique_ptr<Memory>> AllocateHome(Backend& host,
                                                     std::shared_ptr<HomeVersions> versions,
                                                     int64_t bytes);

}  // namespace runnel
