#include "kernels/backends/opencl/staging.h"

#include <algorithm>
#include <utility>

#include "proto/base/status_macros.h"

namespace runnel::opencl {
namespace {

// The host alone computes metrics.
bool IsTheDevices(const Buffer& buffer) { return buffer.storage != Storage::kMetrics; }

// AS_HALVES and AS_ROUNDED of kernels/backends/opencl/cl/prelude.cl.
cl_ulong StoredAs(const Buffer& buffer) {
  return buffer.dtype == DType::kFloat16 ? 1 : buffer.is_rounded() ? 2 : 0;
}

// Calls body(offset in the storage, bytes) for the elements and for the tail; what lies between is
// the owner's.
template <typename Body>
absl::Status ForPieces(const Buffer& buffer, const Body& body) {
  const auto begin = static_cast<size_t>(buffer.offset_bytes);
  const auto elements =
      static_cast<size_t>(buffer.shape.elements()) * static_cast<size_t>(SizeOf(buffer.dtype));
  if (elements > 0) RUNNEL_RETURN_IF_ERROR(body(begin, elements));
  if (!buffer.scaled) return absl::OkStatus();
  return body(begin + static_cast<size_t>(buffer.bytes()) - sizeof(ScaleTail), sizeof(ScaleTail));
}

}  // namespace

Staging::Staging(const Program& program, std::shared_ptr<Session> session,
                 std::shared_ptr<Areas> areas)
    : program_(program), session_(std::move(session)), areas_(std::move(areas)) {
  for (int part = 0; part < kPartCount; ++part) {
    for (const Instruction& instruction : program_.parts[part])
      Note(static_cast<Part>(part), instruction);
  }
}

void Staging::Note(Part part, const Instruction& instruction) {
  const auto note = [&](BufferIndex index, bool is_written) {
    const Buffer& buffer = program_.buffers[index];
    if (!IsTheDevices(buffer)) return;
    Use& use = uses_[static_cast<int>(part)][static_cast<int>(buffer.storage)];
    use.bytes = std::max(use.bytes, buffer.offset_bytes + buffer.bytes());
    use.is_written |= is_written;
  };
  for (size_t i = 0; i < instruction.inputs.size(); ++i)
    note(instruction.inputs[i], TraitsOf(instruction.code).WritesInput(i));
  for (BufferIndex index : instruction.outputs) note(index, true);
}

absl::Status Staging::PlaceHostMemory(Storage storage, const Use& use, std::byte* base) {
  const int i = static_cast<int>(storage);
  if (!session_->shares_memory()) {
    if (copy_bytes_[i] < use.bytes) {
      buffers_[i] = DeviceBuffer();  // first, so that both are never there at once
      copy_bytes_[i] = 0;
      RUNNEL_ASSIGN_OR_RETURN(buffers_[i], CreateBuffer(*session_, use.bytes));
      copy_bytes_[i] = use.bytes;
    }
    places_[i] = buffers_[i].get();
    return absl::OkStatus();
  }
  cl_int code = CL_SUCCESS;
  buffers_[i].handle.reset(clCreateBuffer(session_->context(),
                                          CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                          static_cast<size_t>(use.bytes), base, &code));
  RUNNEL_RETURN_IF_ERROR(session_->Check(code, "clCreateBuffer"));
  places_[i] = buffers_[i].get();
  return absl::OkStatus();
}

absl::Status Staging::Enter(Part part, const Bindings& bindings) {
  is_hosts_ = {};
  for (int i = 0; i < kStorageCount; ++i) {
    const Use& use = uses_[static_cast<int>(part)][i];
    if (use.bytes == 0) continue;
    places_[i] = areas_->Find(bindings.base[i]);
    if (places_[i] != nullptr) continue;
    is_hosts_[i] = true;
    RUNNEL_RETURN_IF_ERROR(PlaceHostMemory(static_cast<Storage>(i), use, bindings.base[i]));
  }
  return session_->shares_memory() ? absl::OkStatus() : CopyIn(part, bindings);
}

absl::Status Staging::CopyIn(Part part, const Bindings& bindings) {
  const auto copy = [&](BufferIndex index) -> absl::Status {
    const Buffer& buffer = program_.buffers[index];
    if (!IsTheDevices(buffer) || !IsHosts(buffer.storage)) return absl::OkStatus();
    return ForPieces(buffer, [&](size_t offset, size_t bytes) {
      return session_->Check(
          clEnqueueWriteBuffer(session_->queue(), places_[static_cast<int>(buffer.storage)],
                               CL_FALSE, offset, bytes, bindings[buffer.storage] + offset, 0,
                               nullptr, nullptr),
          "clEnqueueWriteBuffer");
    });
  };
  for (const Instruction& instruction : program_.part(part)) {
    for (BufferIndex index : instruction.inputs) RUNNEL_RETURN_IF_ERROR(copy(index));
    for (size_t i = 0; i < instruction.outputs.size(); ++i) {
      if (TraitsOf(instruction.code).ReadsOutput(i))
        RUNNEL_RETURN_IF_ERROR(copy(instruction.outputs[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status Staging::CopyOut(Part part, const Bindings& bindings) {
  const auto copy = [&](BufferIndex index) -> absl::Status {
    const Buffer& buffer = program_.buffers[index];
    if (!IsTheDevices(buffer) || !IsHosts(buffer.storage)) return absl::OkStatus();
    return ForPieces(buffer, [&](size_t offset, size_t bytes) {
      return session_->Check(
          clEnqueueReadBuffer(session_->queue(), places_[static_cast<int>(buffer.storage)],
                              CL_FALSE, offset, bytes, bindings[buffer.storage] + offset, 0,
                              nullptr, nullptr),
          "clEnqueueReadBuffer");
    });
  };
  for (const Instruction& instruction : program_.part(part)) {
    for (size_t i = 0; i < instruction.inputs.size(); ++i) {
      if (TraitsOf(instruction.code).WritesInput(i))
        RUNNEL_RETURN_IF_ERROR(copy(instruction.inputs[i]));
    }
    for (BufferIndex index : instruction.outputs) RUNNEL_RETURN_IF_ERROR(copy(index));
  }
  return absl::OkStatus();
}

// A map is what makes the device's writes visible; on shared memory it copies nothing.
absl::Status Staging::ShowHost(Part part) {
  for (int i = 0; i < kStorageCount; ++i) {
    const Use& use = uses_[static_cast<int>(part)][i];
    if (!is_hosts_[i] || !use.is_written) continue;
    cl_int code = CL_SUCCESS;
    void* mapped = clEnqueueMapBuffer(session_->queue(), places_[i], CL_TRUE, CL_MAP_READ, 0,
                                      static_cast<size_t>(use.bytes), 0, nullptr, nullptr, &code);
    RUNNEL_RETURN_IF_ERROR(session_->Check(code, "clEnqueueMapBuffer"));
    RUNNEL_RETURN_IF_ERROR(session_->Check(
        clEnqueueUnmapMemObject(session_->queue(), places_[i], mapped, 0, nullptr, nullptr),
        "clEnqueueUnmapMemObject"));
  }
  return absl::OkStatus();
}

absl::Status Staging::Leave(Part part, const Bindings& bindings) {
  if (std::find(is_hosts_.begin(), is_hosts_.end(), true) == is_hosts_.end())
    return session_->Check(clFlush(session_->queue()), "clFlush");
  RUNNEL_RETURN_IF_ERROR(session_->shares_memory() ? ShowHost(part) : CopyOut(part, bindings));
  RUNNEL_RETURN_IF_ERROR(session_->Finish());
  if (session_->shares_memory()) {
    for (DeviceBuffer& buffer : buffers_) buffer.handle.reset();
  }
  return absl::OkStatus();
}

void Staging::Abandon() {
  session_->Finish().IgnoreError();
  if (!session_->shares_memory()) return;
  for (DeviceBuffer& buffer : buffers_) buffer.handle.reset();
}

TensorRef Staging::At(BufferIndex index) const {
  const Buffer& buffer = program_.buffers[index];
  const auto begin = static_cast<cl_ulong>(buffer.offset_bytes);
  const auto tail = begin + static_cast<cl_ulong>(buffer.bytes()) - sizeof(ScaleTail);
  return {places_[static_cast<int>(buffer.storage)], begin,
          buffer.scaled ? tail : begin + StoredAs(buffer)};
}

}  // namespace runnel::opencl
