#pragma once

// Memory of a stage on a processor other than the host: copies of its state, and areas for values.
// One thread at a time: that of the processor's lane.

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/mixed/platform.h"
#include "kernels/ir/co_scheduler/segments.h"

namespace runnel {

class ProcessorMemory {
 public:
  ProcessorMemory(Platform& platform, int processor) : platform_(platform), processor_(processor) {}

  // Allocates for these segments, of which only this processor's count. Errors as
  // Backend::Allocate.
  absl::Status Allocate(const std::vector<Segment>& segments);

  // Copies in the state that the segment reads; `own`, which has the bindings of the run, is bound
  // to the processor's areas. Errors as Backend::Allocate and Memory::Map.
  absl::Status Enter(const Segment& segment, const StepContext& context, const Bindings& bindings,
                     Bindings& own);
  // Copies out the state that it wrote.
  absl::Status Leave(const Segment& segment, const Bindings& bindings) const;

  // Any thread.
  int64_t bytes() const { return bytes_; }

 private:
  absl::StatusOr<std::unique_ptr<Memory>> AllocateArea(Storage storage);
  // The area for values of micro-batches whose kStash or kScratch lies at `home`.
  absl::StatusOr<Memory*> AreaFor(Storage storage, const std::byte* home);
  absl::Status CopyIn(const std::vector<TensorCopy>& copies, Storage storage,
                      const std::byte* from) const;
  absl::Status CopyParameters(const std::byte* from);

  Platform& platform_;
  const int processor_;
  std::array<int64_t, kStorageCount> sizes_ = {};
  std::array<std::unique_ptr<Memory>, kStorageCount> areas_;  // areas of state
  // Areas of values, by the stage's area that they belong to; null: free.
  std::array<std::map<const std::byte*, std::unique_ptr<Memory>>, kStorageCount> values_;
  std::vector<TensorCopy> parameters_;  // all that its segments read
  // Weights in its copy; version 0: none.
  const std::byte* parameters_of_ = nullptr;
  uint64_t parameter_version_ = 0;
  std::atomic<int64_t> bytes_ = 0;
};

}  // namespace runnel
