#include "kernels/backends/mixed/processor_memory.h"

#include <algorithm>
#include <utility>

#include "proto/base/status_macros.h"

namespace runnel {
namespace {

bool HoldsInnerValues(Storage storage) {
  return storage == Storage::kStash || storage == Storage::kScratch;
}

// Whether it is bound to an area of the processor's own.
bool IsTheProcessors(Storage storage) { return IsState(storage) || HoldsInnerValues(storage); }

}  // namespace

absl::StatusOr<std::unique_ptr<Memory>> ProcessorMemory::AllocateArea(Storage storage) {
  const int64_t size = sizes_[static_cast<size_t>(storage)];
  bytes_ += size;
  return platform_.processor(processor_).Allocate(size);
}

absl::Status ProcessorMemory::Allocate(const std::vector<Segment>& segments) {
  for (const Segment& segment : segments) {
    if (segment.processor != processor_) continue;
    for (size_t i = 0; i < sizes_.size(); ++i) sizes_[i] = std::max(sizes_[i], segment.extents[i]);
    for (const TensorCopy& copy : segment.state_read) {
      const bool is_new = std::none_of(
          parameters_.begin(), parameters_.end(),
          [&](const TensorCopy& known) { return known.offset_bytes == copy.offset_bytes; });
      if (copy.storage == Storage::kParameters && is_new) parameters_.push_back(copy);
    }
  }
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const auto storage = static_cast<Storage>(i);
    if (sizes_[i] == 0 || !IsTheProcessors(storage)) continue;
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> area, AllocateArea(storage));
    if (HoldsInnerValues(storage)) {
      values_[i][nullptr] = std::move(area);
    } else {
      areas_[i] = std::move(area);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Memory*> ProcessorMemory::AreaFor(Storage storage, const std::byte* home) {
  auto& areas = values_[static_cast<size_t>(storage)];
  // Values that are not kept share one area.
  if (!platform_.keeps_values[static_cast<size_t>(processor_)]) home = nullptr;
  if (const auto found = areas.find(home); found != areas.end()) return found->second.get();
  if (auto unused = areas.extract(nullptr); !unused.empty()) {
    unused.key() = home;
    return areas.insert(std::move(unused)).position->second.get();
  }
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> area, AllocateArea(storage));
  return (areas[home] = std::move(area)).get();
}

absl::Status ProcessorMemory::Enter(const Segment& segment, const StepContext& context,
                                    const Bindings& bindings, Bindings& own) {
  for (int i = 0; i < kStorageCount; ++i) {
    const auto storage = static_cast<Storage>(i);
    if (!IsTheProcessors(storage)) continue;
    own[storage] = nullptr;
    if (segment.extents[static_cast<size_t>(i)] == 0) continue;
    if (HoldsInnerValues(storage)) {
      RUNNEL_ASSIGN_OR_RETURN(const Memory* area, AreaFor(storage, bindings[storage]));
      own[storage] = area->address();
      continue;
    }
    own[storage] = areas_[static_cast<size_t>(i)]->address();
    if (storage == Storage::kParameters) {
      RUNNEL_RETURN_IF_ERROR(CopyParameters(bindings[storage]));
      continue;
    }
    // The first gradients of a step overwrite the area.
    const bool overwrites =
        storage == Storage::kGradients && segment.part != Part::kUpdate && !context.accumulate;
    if (!overwrites) RUNNEL_RETURN_IF_ERROR(CopyIn(segment.state_read, storage, bindings[storage]));
  }
  return absl::OkStatus();
}

absl::Status ProcessorMemory::CopyIn(const std::vector<TensorCopy>& copies, Storage storage,
                                     const std::byte* from) const {
  const auto is_here = [storage](const TensorCopy& copy) { return copy.storage == storage; };
  if (std::none_of(copies.begin(), copies.end(), is_here)) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(
      const Mapping to, Mapping::Of(*areas_[static_cast<size_t>(storage)], MapAccess::kReadWrite));
  for (const TensorCopy& copy : copies) {
    if (!is_here(copy)) continue;
    CopyTensor(copy, from + copy.offset_bytes, to.data() + copy.offset_bytes);
    platform_.traffic.bytes_to_processors += copy.bytes();
  }
  return absl::OkStatus();
}

// Weights move once a version.
absl::Status ProcessorMemory::CopyParameters(const std::byte* from) {
  const uint64_t version = platform_.versions.VersionOf(from);
  if (version != 0 && parameters_of_ == from && parameter_version_ == version)
    return absl::OkStatus();
  parameter_version_ = 0;
  RUNNEL_RETURN_IF_ERROR(CopyIn(parameters_, Storage::kParameters, from));
  parameters_of_ = from;
  parameter_version_ = version;
  return absl::OkStatus();
}

absl::Status ProcessorMemory::Leave(const Segment& segment, const Bindings& bindings) const {
  for (int i = 0; i < kStorageCount; ++i) {
    const auto storage = static_cast<Storage>(i);
    const auto is_here = [storage](const TensorCopy& copy) { return copy.storage == storage; };
    const std::vector<TensorCopy>& written = segment.state_written;
    if (std::none_of(written.begin(), written.end(), is_here)) continue;
    RUNNEL_ASSIGN_OR_RETURN(const Mapping from,
                            Mapping::Of(*areas_[static_cast<size_t>(i)], MapAccess::kRead));
    for (const TensorCopy& copy : written) {
      if (!is_here(copy)) continue;
      CopyTensor(copy, from.data() + copy.offset_bytes, bindings[storage] + copy.offset_bytes);
      platform_.traffic.bytes_from_processors += copy.bytes();
    }
  }
  return absl::OkStatus();
}

}  // namespace runnel
