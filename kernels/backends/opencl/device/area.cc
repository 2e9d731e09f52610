#include "kernels/backends/opencl/device/area.h"

#include <algorithm>
#include <utility>

#include "proto/base/status_macros.h"

namespace runnel::opencl {

// Bindings hold the object's own address: the host cannot address the buffer's bytes.
class alignas(64) Area final : public Memory {
 public:
  Area(std::shared_ptr<Areas> areas, DeviceBuffer buffer, int64_t bytes)
      : areas_(std::move(areas)), buffer_(std::move(buffer)), bytes_(bytes) {
    areas_->Add(address(), buffer_.get());
  }
  ~Area() override { areas_->Remove(address()); }

  int64_t bytes() const override { return bytes_; }
  std::byte* address() const override {
    return reinterpret_cast<std::byte*>(const_cast<Area*>(this));
  }

  absl::StatusOr<std::byte*> Map(MapAccess access) override {
    Session& session = *areas_->session_;
    RUNNEL_RETURN_IF_ERROR(session.lost());
    const cl_map_flags flags =
        access == MapAccess::kRead ? CL_MAP_READ : CL_MAP_READ | CL_MAP_WRITE;
    const DriverWatch::Call call(session.watch(), "clEnqueueMapBuffer");
    cl_int code = CL_SUCCESS;
    mapped_ = clEnqueueMapBuffer(session.queue(), buffer_.get(), CL_TRUE, flags, 0,
                                 std::max<size_t>(1, static_cast<size_t>(bytes_)), 0, nullptr,
                                 nullptr, &code);
    RUNNEL_RETURN_IF_ERROR(session.Check(code, "clEnqueueMapBuffer"));
    return static_cast<std::byte*>(mapped_);
  }

  // The session keeps the error for the next Run.
  void Unmap() override {
    Session& session = *areas_->session_;
    session
        .Check(
            clEnqueueUnmapMemObject(session.queue(), buffer_.get(), mapped_, 0, nullptr, nullptr),
            "clEnqueueUnmapMemObject")
        .IgnoreError();
  }

 private:
  const std::shared_ptr<Areas> areas_;
  const DeviceBuffer buffer_;
  const int64_t bytes_;
  void* mapped_ = nullptr;
};

absl::StatusOr<DeviceBuffer> CreateBuffer(Session& session, int64_t bytes) {
  RUNNEL_RETURN_IF_ERROR(session.lost());
  // Whole texels, for who reads it as an image.
  constexpr int64_t kTexelBytes = 16;
  const int64_t size = std::max<int64_t>((bytes + kTexelBytes - 1) / kTexelBytes * kTexelBytes, 64);
  DeviceBuffer buffer;
  RUNNEL_ASSIGN_OR_RETURN(buffer.share, session.budget()->Take(size));
  cl_mem_flags flags = CL_MEM_READ_WRITE;
  if (session.shares_memory()) flags |= CL_MEM_ALLOC_HOST_PTR;
  cl_int code = CL_SUCCESS;
  buffer.handle.reset(
      clCreateBuffer(session.context(), flags, static_cast<size_t>(size), nullptr, &code));
  if (code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_INVALID_BUFFER_SIZE)
    return NoRoom(session.device().name, bytes, NameOfError(code));
  RUNNEL_RETURN_IF_ERROR(session.Check(code, "clCreateBuffer"));
  return buffer;
}

absl::StatusOr<std::unique_ptr<Memory>> Areas::Allocate(int64_t bytes) {
  RUNNEL_ASSIGN_OR_RETURN(DeviceBuffer buffer, CreateBuffer(*session_, bytes));
  const cl_uchar zero = 0;
  const cl_int code =
      clEnqueueFillBuffer(session_->queue(), buffer.get(), &zero, sizeof zero, 0,
                          static_cast<size_t>(std::max<int64_t>(bytes, 64)), 0, nullptr, nullptr);
  // Many drivers look for the memory only now.
  const DriverWatch::Call call(session_->watch(), "clFinish");
  if (code == CL_MEM_OBJECT_ALLOCATION_FAILURE || clFinish(session_->queue()) != CL_SUCCESS) {
    return NoRoom(session_->device().name, bytes, "its driver gives none");
  }
  RUNNEL_RETURN_IF_ERROR(session_->Check(code, "clEnqueueFillBuffer"));
  return std::make_unique<Area>(shared_from_this(), std::move(buffer), bytes);
}

void Areas::Add(const std::byte* address, cl_mem buffer) {
  const std::lock_guard lock(mutex_);
  buffers_[address] = buffer;
}

void Areas::Remove(const std::byte* address) {
  const std::lock_guard lock(mutex_);
  buffers_.erase(address);
}

cl_mem Areas::Find(const std::byte* address) const {
  const std::lock_guard lock(mutex_);
  const auto found = buffers_.find(address);
  return found == buffers_.end() ? nullptr : found->second;
}

}  // namespace runnel::opencl
