#include "kernels/hexagon/shared_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/hexagon/op_list.h"
#include "kernels/lost_backend.h"

namespace runnel::hexagon {

class SharedArea final : public Memory {
 public:
  SharedArea(std::shared_ptr<SharedMemory> memory, uint32_t offset, int64_t bytes)
      : memory_(std::move(memory)), offset_(offset), bytes_(bytes) {}
  ~SharedArea() override { memory_->Free(offset_); }

  int64_t bytes() const override { return bytes_; }
  std::byte* address() const override { return memory_->base() + offset_; }
  absl::StatusOr<std::byte*> Map(MapAccess access) override {
    if (access == MapAccess::kReadWrite) memory_->RenewVersion(address());
    return address();
  }
  void Unmap() override {}

 private:
  const std::shared_ptr<SharedMemory> memory_;
  const uint32_t offset_;
  const int64_t bytes_;
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
  std::shared_ptr<SharedMemory> memory(
      new SharedMemory(file, static_cast<std::byte*>(base), bytes));
  memory->first_ = reserved_bytes;
  return memory;
}

SharedMemory::~SharedMemory() {
  munmap(base_, bytes_);
  close(file_);
}

absl::StatusOr<std::unique_ptr<Memory>> SharedMemory::Allocate(int64_t bytes) {
  const int64_t size = (bytes + kSlackBytes + 127) / 128 * 128;
  const std::lock_guard lock(mutex_);
  int64_t offset = first_;
  for (const auto& [begin, area] : areas_) {
    if (begin - offset >= size) break;
    offset = int64_t{begin} + area.bytes;
  }
  if (offset + size > bytes_) {
    return MarkLostBackend(absl::ResourceExhaustedError(
                               absl::StrCat("backend hexagon: no room for ", bytes, " bytes in ",
                                            bytes_, " bytes of memory shared with the DSP")),
                           "hexagon");
  }
  const auto at = static_cast<uint32_t>(offset);
  std::memset(base_ + at, 0, static_cast<size_t>(size));
  areas_[at] = {static_cast<uint32_t>(size), ++last_version_};
  return std::make_unique<SharedArea>(shared_from_this(), at, bytes);
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

}  // namespace runnel::hexagon
