#include "kernels/co_scheduler/mixed_executable.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/host/host_memory.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Whether a processor other than the host needs an area of its own for it.
bool IsTheProcessors(Storage storage) {
  return IsState(storage) || storage == Storage::kStash || storage == Storage::kScratch;
}

absl::Status NotBound(Storage storage) {
  return absl::FailedPreconditionError(absl::StrCat("storage ", Name(storage), " is not bound"));
}

// What a processor other than the host has of a stage.
struct Mirror {
  std::array<std::unique_ptr<Memory>, kStorageCount> areas;
  std::vector<TensorCopy> parameters;  // all that its segments read
  // Which weights its copy has; version 0: none.
  const std::byte* parameters_of = nullptr;
  uint64_t parameter_version = 0;

  Memory& area(Storage storage) const { return *areas[static_cast<size_t>(storage)]; }
};

struct PreparedSegment {
  Segment segment;
  std::unique_ptr<Executable> executable;
};

class MixedExecutable final : public Executable {
 public:
  MixedExecutable(size_t processors, std::shared_ptr<HomeVersions> versions)
      : versions_(std::move(versions)), mirrors_(processors) {}

  absl::Status Prepare(std::vector<Segment> segments,
                       absl::Span<const std::unique_ptr<Backend>> processors) {
    int64_t in_bytes = 0, out_bytes = 0;
    for (Segment& segment : segments) {
      in_bytes = std::max(in_bytes, segment.in_bytes);
      out_bytes = std::max(out_bytes, segment.out_bytes);
      auto& prepared = segments_.emplace_back(std::make_unique<PreparedSegment>());
      prepared->segment = std::move(segment);
      Backend& processor = *processors[static_cast<size_t>(prepared->segment.processor)];
      RUNNEL_ASSIGN_OR_RETURN(prepared->executable, processor.Prepare(prepared->segment.program));
    }
    RUNNEL_ASSIGN_OR_RETURN(in_, AllocateHostMemory(in_bytes));
    RUNNEL_ASSIGN_OR_RETURN(out_, AllocateHostMemory(out_bytes));
    memory_bytes_ = in_bytes + out_bytes;
    for (size_t p = 1; p < mirrors_.size(); ++p)
      RUNNEL_RETURN_IF_ERROR(AllocateMirror(static_cast<int>(p), *processors[p]));
    return absl::OkStatus();
  }

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    for (const auto& prepared : segments_) {
      if (prepared->segment.part == part)
        RUNNEL_RETURN_IF_ERROR(RunSegment(*prepared, context, bindings));
    }
    return absl::OkStatus();
  }

  int64_t memory_bytes() const override {
    int64_t bytes = memory_bytes_;
    for (const auto& prepared : segments_) bytes += prepared->executable->memory_bytes();
    return bytes;
  }

 private:
  absl::Status AllocateMirror(int processor, Backend& backend) {
    Mirror& mirror = mirrors_[static_cast<size_t>(processor)];
    for (int i = 0; i < kStorageCount; ++i) {
      if (!IsTheProcessors(static_cast<Storage>(i))) continue;
      int64_t bytes = 0;
      for (const auto& prepared : segments_) {
        const Segment& segment = prepared->segment;
        if (segment.processor == processor)
          bytes = std::max(bytes, segment.extents[static_cast<size_t>(i)]);
      }
      if (bytes == 0) continue;
      RUNNEL_ASSIGN_OR_RETURN(mirror.areas[static_cast<size_t>(i)], backend.Allocate(bytes));
      memory_bytes_ += bytes;
    }
    for (const auto& prepared : segments_) {
      if (prepared->segment.processor != processor) continue;
      for (const TensorCopy& copy : prepared->segment.state_read) {
        if (copy.storage == Storage::kParameters) mirror.parameters.push_back(copy);
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunSegment(const PreparedSegment& prepared, const StepContext& context,
                          const Bindings& bindings) {
    const Segment& segment = prepared.segment;
    for (const auto* copies :
         {&segment.in, &segment.out, &segment.state_read, &segment.state_written}) {
      for (const TensorCopy& copy : *copies) {
        if (bindings[copy.storage] == nullptr) return NotBound(copy.storage);
      }
    }
    for (const TensorCopy& copy : segment.in) {
      CopyTensor(copy, bindings[copy.storage] + copy.offset_bytes,
                 in_->address() + copy.packed_bytes);
    }
    Bindings own = bindings;
    own[Storage::kInput] = in_->address();
    own[Storage::kOutput] = out_->address();
    if (segment.processor > 0) RUNNEL_RETURN_IF_ERROR(Enter(segment, context, bindings, own));
    RUNNEL_RETURN_IF_ERROR(prepared.executable->Run(segment.part, context, own));
    for (const TensorCopy& copy : segment.out) {
      CopyTensor(copy, out_->address() + copy.packed_bytes,
                 bindings[copy.storage] + copy.offset_bytes);
    }
    if (segment.processor > 0) RUNNEL_RETURN_IF_ERROR(Leave(segment, bindings));
    for (const TensorCopy& copy : segment.state_written) {
      if (copy.storage == Storage::kParameters || copy.storage == Storage::kNewParameters)
        versions_->Renew(bindings[copy.storage]);
    }
    return absl::OkStatus();
  }

  // The processor has the state that the segment reads, and `own` is bound to its areas.
  absl::Status Enter(const Segment& segment, const StepContext& context, const Bindings& bindings,
                     Bindings& own) {
    Mirror& mirror = mirrors_[static_cast<size_t>(segment.processor)];
    for (int i = 0; i < kStorageCount; ++i) {
      const auto storage = static_cast<Storage>(i);
      if (!IsTheProcessors(storage)) continue;
      own[storage] = nullptr;
      if (segment.extents[static_cast<size_t>(i)] == 0) continue;
      own[storage] = mirror.area(storage).address();
      if (storage == Storage::kParameters) {
        RUNNEL_RETURN_IF_ERROR(CopyParameters(mirror, bindings[storage]));
        continue;
      }
      // The first gradients of a step overwrite what is there.
      const bool overwrites =
          storage == Storage::kGradients && segment.part != Part::kUpdate && !context.accumulate;
      if (!overwrites)
        RUNNEL_RETURN_IF_ERROR(CopyIn(segment.state_read, storage, mirror, bindings[storage]));
    }
    return absl::OkStatus();
  }

  static absl::Status CopyIn(const std::vector<TensorCopy>& copies, Storage storage,
                             const Mirror& mirror, const std::byte* from) {
    const auto is_here = [storage](const TensorCopy& copy) { return copy.storage == storage; };
    if (std::none_of(copies.begin(), copies.end(), is_here)) return absl::OkStatus();
    RUNNEL_ASSIGN_OR_RETURN(const Mapping to,
                            Mapping::Of(mirror.area(storage), MapAccess::kReadWrite));
    for (const TensorCopy& copy : copies) {
      if (is_here(copy)) CopyTensor(copy, from + copy.offset_bytes, to.data() + copy.offset_bytes);
    }
    return absl::OkStatus();
  }

  // Weights move once a version.
  absl::Status CopyParameters(Mirror& mirror, const std::byte* from) {
    const uint64_t version = versions_->VersionOf(from);
    if (version != 0 && mirror.parameters_of == from && mirror.parameter_version == version)
      return absl::OkStatus();
    mirror.parameter_version = 0;
    RUNNEL_RETURN_IF_ERROR(CopyIn(mirror.parameters, Storage::kParameters, mirror, from));
    mirror.parameters_of = from;
    mirror.parameter_version = version;
    return absl::OkStatus();
  }

  absl::Status Leave(const Segment& segment, const Bindings& bindings) const {
    const Mirror& mirror = mirrors_[static_cast<size_t>(segment.processor)];
    for (int i = 0; i < kStorageCount; ++i) {
      const auto storage = static_cast<Storage>(i);
      const auto is_here = [storage](const TensorCopy& copy) { return copy.storage == storage; };
      const std::vector<TensorCopy>& written = segment.state_written;
      if (std::none_of(written.begin(), written.end(), is_here)) continue;
      RUNNEL_ASSIGN_OR_RETURN(const Mapping from,
                              Mapping::Of(mirror.area(storage), MapAccess::kRead));
      for (const TensorCopy& copy : written) {
        if (!is_here(copy)) continue;
        CopyTensor(copy, from.data() + copy.offset_bytes, bindings[storage] + copy.offset_bytes);
      }
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<HomeVersions> versions_;
  std::vector<Mirror> mirrors_;  // by processor; the host's stays empty
  std::unique_ptr<Memory> in_, out_;
  int64_t memory_bytes_ = 0;
  std::vector<std::unique_ptr<PreparedSegment>> segments_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executable>> PrepareSegments(
    std::vector<Segment> segments, absl::Span<const std::unique_ptr<Backend>> processors,
    std::shared_ptr<HomeVersions> versions) {
  auto executable = std::make_unique<MixedExecutable>(processors.size(), std::move(versions));
  RUNNEL_RETURN_IF_ERROR(executable->Prepare(std::move(segments), processors));
  return executable;
}

}  // namespace runnel
