#include "kernels/backends/hexagon/shared_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backends/hexagon/op_list.h"
#include "kernels/backends/lost_backend.h"

namespace runnel::hexagon {

class SharedArea final : public Memory {
 public:
  SharedArea(std::shared_ptr<SharedMemory> memory, uint32_t offset, int64_t bytes)
      : memory_(std::move(memory)), offset_(offset), bytes_(bytes) {}
  ~SharedArea() override { memory_->Free(offset_); }

  int64_t bytes() const override { return bytes_; }
  std::byte* address() const override { return memory_->base() + offset_; }
  absl::StatusOr<std::byte*> Map(MapAccess access) override {
    access_ = access;
    if (access == MapAccess::kReadWrite) memory_->RenewVersion(address());
    return address();
  }
  void Unmap() override {
    if (access_ == MapAccess::kReadWrite) {
      memory_->RecordChange(offset_, static_cast<uint32_t>(bytes_));
    }
  }

 private:
  const std::shared_ptr<SharedMemory> memory_;
  const uint32_t offset_;
  const int64_t bytes_;
  MapAccess access_ = MapAccess::kRead;
};

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Create(uint32_t bytes,
                                                                   uint32_t reserved_bytes) {
  const auto refuse = [](const char* what) {
    return absl::UnavailableError(absl::StrCat("shared memory: ", what, ": ", strerror(errno)));
  };
  const int file = memfd_create("runnel-dsp", MFD_CLOEXEC);
  if (file < 0) return refuse("memfd_create");
  if (ftruncate(file, bytes) != 0) {
    const absl::Status status = refuse("ftruncate");
    close(file);
    return status;
  }
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (base == MAP_FAILED) {
    const absl::Status status = refuse("mmap");
    close(file);
    return status;
  }
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(file, static_cast<std::byte*>(base), bytes, reserved_bytes, [=] {
        munmap(base, bytes);
        close(file);
      }));
}

std::shared_ptr<SharedMemory> SharedMemory::Adopt(int file, std::byte* base, uint32_t bytes,
                                                  uint32_t reserved_bytes,
                                                  std::function<void()> release) {
  std::shared_ptr<SharedMemory> memory(
      new SharedMemory(file, base, bytes, reserved_bytes, std::move(release)));
  memory->remembers_changes_ = true;
  return memory;
}

SharedMemory::~SharedMemory() { release_(); }

absl::StatusOr<std::unique_ptr<Memory>> SharedMemory::Allocate(int64_t bytes) {
  const int64_t size = (bytes + kSlackBytes + 127) / 128 * 128;
  const std::lock_guard lock(mutex_);
  int64_t offset = first_;
  for (const auto& [begin, area] : areas_) {
    if (begin - offset >= size) break;
    offset = int64_t{begin} + area.bytes;
  }
  if (offset + size > bytes_) {
    return MarkLostBackend(
        absl::ResourceExhaustedError(absl::StrCat(
            "backend hexagon: no room for ", bytes, " bytes: ", TakenLocked(), " of ", bytes_,
            " bytes that programs share with the DSP are taken "
            "(--device-memory-mb)")),
        "hexagon");
  }
  const auto at = static_cast<uint32_t>(offset);
  std::memset(base_ + at, 0, static_cast<size_t>(size));
  areas_[at] = {static_cast<uint32_t>(size), ++last_version_};
  if (remembers_changes_) changes_.Add(at, static_cast<uint32_t>(size));
  return std::make_unique<SharedArea>(shared_from_this(), at, bytes);
}

int64_t SharedMemory::TakenLocked() const {
  int64_t taken = first_;
  for (const auto& [begin, area] : areas_) taken += area.bytes;
  return taken;
}

int64_t SharedMemory::taken_bytes() const {
  const std::lock_guard lock(mutex_);
  return TakenLocked();
}

void SharedMemory::Free(uint32_t offset) {
  const std::lock_guard lock(mutex_);
  areas_.erase(offset);
}

uint64_t SharedMemory::VersionOf(const std::byte* at) const {
  const std::lock_guard lock(mutex_);
  const auto area = areas_.find(OffsetOf(at));
  return area == areas_.end() ? 0 : area->second.version;
}

void SharedMemory::RenewVersion(const std::byte* at) {
  const std::lock_guard lock(mutex_);
  const auto area = areas_.find(OffsetOf(at));
  if (area != areas_.end()) area->second.version = ++last_version_;
}

void SharedMemory::RecordChange(uint32_t offset, uint32_t bytes) {
  if (!remembers_changes_) return;
  const std::lock_guard lock(mutex_);
  changes_.Add(offset, bytes);
}

RangeSet SharedMemory::TakeChanges() {
  const std::lock_guard lock(mutex_);
  return std::exchange(changes_, {});
}

}  // namespace runnel::hexagon
