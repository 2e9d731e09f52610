#include "kernels/backends/opencl/staging.h"

#include <algorithm>
#include <utility>

#include "kernels/backends/opencl/packing.h"
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

void AddOnce(BufferIndex index, std::vector<BufferIndex>* all) {
  if (std::find(all->begin(), all->end(), index) == all->end()) all->push_back(index);
}

}  // namespace

Staging::Staging(const Program& program, std::shared_ptr<Session> session,
                 std::shared_ptr<Areas> areas)
    : program_(program),
      session_(std::move(session)),
      areas_(std::move(areas)),
      packed_(FindPacked(program)) {
  for (int part = 0; part < kPartCount; ++part) {
    for (const Instruction& instruction : program_.parts[part]) Note(instruction, &uses_[part]);
  }
}

void Staging::Note(const Instruction& instruction, Uses* uses) {
  const auto note = [&](BufferIndex index, bool is_read, bool is_written) {
    const Buffer& buffer = program_.buffers[index];
    if (!IsTheDevices(buffer)) return;
    int64_t& bytes = uses->bytes[static_cast<int>(buffer.storage)];
    bytes = std::max(bytes, buffer.offset_bytes + buffer.bytes());
    if (is_read) AddOnce(index, &uses->read);
    if (is_written) AddOnce(index, &uses->written);
  };
  const OpTraits& traits = TraitsOf(instruction.code);
  for (size_t i = 0; i < instruction.inputs.size(); ++i)
    note(instruction.inputs[i], true, traits.WritesInput(i));
  for (size_t i = 0; i < instruction.outputs.size(); ++i)
    note(instruction.outputs[i], traits.ReadsOutput(i), true);
}

absl::Status Staging::MakeRoom(int storage, int64_t bytes) {
  DeviceBuffer& copy = copies_[storage];
  if (copy.get() != nullptr && copy.bytes() >= bytes) return absl::OkStatus();
  // At once for all parts.
  for (const Uses& uses : uses_) bytes = std::max(bytes, uses.bytes[storage]);
  copy = DeviceBuffer();  // first, so that both are never there at once
  RUNNEL_ASSIGN_OR_RETURN(copy, CreateBuffer(*session_, bytes));
  return absl::OkStatus();
}

absl::Status Staging::Enter(Part part, const Bindings& bindings) {
  const Uses& uses = uses_[static_cast<int>(part)];
  is_hosts_ = {};
  for (int i = 0; i < kStorageCount; ++i) {
    if (uses.bytes[i] == 0) continue;
    places_[i] = areas_->Find(bindings.base[i]);
    if (places_[i] != nullptr) continue;
    is_hosts_[i] = true;
    RUNNEL_RETURN_IF_ERROR(MakeRoom(i, uses.bytes[i]));
    places_[i] = copies_[i].get();
  }
  return CopyIn(uses, bindings);
}

absl::Status Staging::CopyIn(const Uses& uses, const Bindings& bindings) {
  for (const BufferIndex index : uses.read) {
    const Buffer& buffer = program_.buffers[index];
    if (!IsHosts(buffer.storage)) continue;
    RUNNEL_RETURN_IF_ERROR(ForPieces(buffer, [&](size_t offset, size_t bytes) {
      return session_->Check(
          clEnqueueWriteBuffer(session_->queue(), places_[static_cast<int>(buffer.storage)],
                               CL_FALSE, offset, bytes, bindings[buffer.storage] + offset, 0,
                               nullptr, nullptr),
          "clEnqueueWriteBuffer");
    }));
  }
  return absl::OkStatus();
}

absl::Status Staging::CopyOut(const Uses& uses, const Bindings& bindings) {
  for (const BufferIndex index : uses.written) {
    const Buffer& buffer = program_.buffers[index];
    if (!IsHosts(buffer.storage)) continue;
    RUNNEL_RETURN_IF_ERROR(ForPieces(buffer, [&](size_t offset, size_t bytes) {
      return session_->Check(
          clEnqueueReadBuffer(session_->queue(), places_[static_cast<int>(buffer.storage)],
                              CL_FALSE, offset, bytes, bindings[buffer.storage] + offset, 0,
                              nullptr, nullptr),
          "clEnqueueReadBuffer");
    }));
  }
  return absl::OkStatus();
}

absl::Status Staging::Leave(Part part, const Bindings& bindings) {
  if (std::find(is_hosts_.begin(), is_hosts_.end(), true) == is_hosts_.end())
    return session_->Check(clFlush(session_->queue()), "clFlush");
  RUNNEL_RETURN_IF_ERROR(CopyOut(uses_[static_cast<int>(part)], bindings));
  return session_->Finish();
}

void Staging::Abandon() { session_->Finish().IgnoreError(); }

TensorRef Staging::At(BufferIndex index) const {
  const Buffer& buffer = program_.buffers[index];
  const auto begin = static_cast<cl_ulong>(buffer.offset_bytes);
  const auto tail = begin + static_cast<cl_ulong>(buffer.bytes()) - sizeof(ScaleTail);
  return {places_[static_cast<int>(buffer.storage)], begin,
          buffer.scaled ? tail + (packed_[static_cast<size_t>(index)] ? 1 : 0)
                        : begin + StoredAs(buffer)};
}

}  // namespace runnel::opencl
