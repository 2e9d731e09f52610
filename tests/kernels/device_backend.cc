#include "tests/kernels/device_backend.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Pages of their own; closed ones fault.
class Pages {
 public:
  explicit Pages(int64_t bytes)
      : size_(static_cast<size_t>(bytes) + 1),
        data_(static_cast<std::byte*>(
            mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Pages() { munmap(data_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* data() const { return data_; }
  void Open() { mprotect(data_, size_, PROT_READ | PROT_WRITE); }
  void Close() { mprotect(data_, size_, PROT_NONE); }

 private:
  size_t size_;
  std::byte* data_;
};

// The storages whose memory is the backend's.
bool IsDevice(Storage storage) {
  switch (storage) {
    case Storage::kInput:
    case Storage::kOutput:
    case Storage::kOutputGradient:
    case Storage::kInputGradient:
    case Storage::kLabels:
    case Storage::kMetrics:
      return false;
    default:
      return true;
  }
}

class DeviceMemory;
using Areas = std::map<const std::byte*, DeviceMemory*>;  // by address

class DeviceMemory final : public Memory {
 public:
  DeviceMemory(Areas& areas, int64_t bytes)
      : areas_(areas), bytes_(bytes), handle_(0), contents_(bytes) {
    handle_.Close();
    contents_.Close();
    areas_[address()] = this;
  }
  ~DeviceMemory() override { areas_.erase(address()); }

  int64_t bytes() const override { return bytes_; }
  std::byte* address() const override { return handle_.data(); }
  absl::StatusOr<std::byte*> Map(MapAccess access) override {
    if (mapped_ != nullptr) return absl::FailedPreconditionError("mapped already");
    access_ = access;
    mapped_ = std::make_unique<Pages>(bytes_);
    contents_.Open();
    std::memcpy(mapped_->data(), contents_.data(), static_cast<size_t>(bytes_));
    contents_.Close();
    return mapped_->data();
  }
  void Unmap() override {
    contents_.Open();
    if (access_ == MapAccess::kReadWrite)
      std::memcpy(contents_.data(), mapped_->data(), static_cast<size_t>(bytes_));
    contents_.Close();
    mapped_.reset();
  }

  bool mapped() const { return mapped_ != nullptr; }
  Pages& contents() { return contents_; }

 private:
  Areas& areas_;
  int64_t bytes_;
  Pages handle_;  // its address names the area and is nothing else
  Pages contents_;
  MapAccess access_ = MapAccess::kRead;
  std::unique_ptr<Pages> mapped_;
};

class DeviceExecutable final : public Executable {
 public:
  DeviceExecutable(const Areas& areas, std::unique_ptr<Executable> host)
      : areas_(areas), host_(std::move(host)) {}

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    Bindings on_device = bindings;
    std::vector<DeviceMemory*> open;
    for (int i = 0; i < kStorageCount; ++i) {
      const auto storage = static_cast<Storage>(i);
      if (!IsDevice(storage) || bindings[storage] == nullptr) continue;
      const auto area = areas_.find(bindings[storage]);
      if (area == areas_.end() || area->second->mapped()) {
        return absl::FailedPreconditionError(
            absl::StrCat(Name(storage), " is not an area of the device that is free to compute"));
      }
      on_device[storage] = area->second->contents().data();
      open.push_back(area->second);
    }
    for (DeviceMemory* memory : open) memory->contents().Open();
    const absl::Status status = host_->Run(part, context, on_device);
    for (DeviceMemory* memory : open) memory->contents().Close();
    return status;
  }

 private:
  const Areas& areas_;
  std::unique_ptr<Executable> host_;
};

class DeviceBackend final : public Backend {
 public:
  explicit DeviceBackend(std::unique_ptr<Backend> host) : host_(std::move(host)) {}

  BackendTraits traits() const override {
    const BackendTraits host = host_->traits();
    return {.name = "device",
            .numerics_class = host.numerics_class,
            .memory = MemoryKind::kDevice,
            .recomputes = host.recomputes,
            .rescales_in_products = host.rescales_in_products};
  }
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override {
    return std::make_unique<DeviceMemory>(areas_, bytes);
  }
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable, host_->Prepare(program));
    return std::make_unique<DeviceExecutable>(areas_, std::move(executable));
  }

 private:
  std::unique_ptr<Backend> host_;
  Areas areas_;
};

}  // namespace

std::unique_ptr<Backend> MakeDeviceBackend(std::unique_ptr<Backend> host) {
  return std::make_unique<DeviceBackend>(std::move(host));
}

}  // namespace runnel
