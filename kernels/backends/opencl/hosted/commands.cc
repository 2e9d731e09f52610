// Arguments of kernels, and what is enqueued.

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/backends/opencl/hosted/host_state.h"

namespace runnel::opencl {
namespace {

// Pieces that fit the area beside other arguments.
constexpr size_t kPieceBytes = kHostAreaBytes / 2;

template <typename Body>
cl_int ForPieces(size_t bytes, const Body& body) {
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const cl_int code = body(at, std::min(kPieceBytes, bytes - at));
    if (code != CL_SUCCESS) return code;
  }
  return CL_SUCCESS;
}

}  // namespace

RUNNEL_EXPORT cl_int clSetKernelArg(cl_kernel kernel, cl_uint at, size_t size, const void* value) {
  if (value == nullptr) return CL_INVALID_VALUE;
  bool is_handle = false;
  cl_mem memory = nullptr;
  if (size == sizeof memory) {
    std::memcpy(&memory, value, sizeof memory);
    const std::lock_guard lock(TheHost().mutex);
    is_handle = TheHost().memory.count(memory) > 0;
  }
  HostCall call = CallOf(kSetKernelArg);
  call.Number(NumberOf(kernel)).Number(at).Fixed();
  if (is_handle) {
    call.Number(NumberOf(memory) | HOST_IS_HANDLE);
  } else {
    call.In(value, size);
  }
  return CodeOf(call);
}

RUNNEL_EXPORT cl_int clReleaseKernel(cl_kernel kernel) { return CallWith(kReleaseKernel, kernel); }

RUNNEL_EXPORT cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel,
                                            cl_uint dimensions, const size_t* offset,
                                            const size_t* global, const size_t* local,
                                            cl_uint waits, const cl_event*, cl_event* event) {
  constexpr cl_uint kMostDimensions = 3;
  if (waits != 0 || event != nullptr) return CL_INVALID_VALUE;
  if (dimensions < 1 || dimensions > kMostDimensions) return CL_INVALID_WORK_DIMENSION;
  HostCall call = CallOf(kEnqueueNDRangeKernel);
  call.Number(NumberOf(queue)).Number(NumberOf(kernel)).Number(dimensions);
  for (const size_t* sizes : {offset, global, local}) {
    size_t all[kMostDimensions] = {};
    if (sizes != nullptr) std::copy(sizes, sizes + dimensions, all);
    call.In(sizes == nullptr ? nullptr : all, sizeof all);
  }
  call.Fixed().Fixed().Fixed();
  return CodeOf(call);
}

RUNNEL_EXPORT cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool,
                                         size_t offset, size_t size, void* data, cl_uint waits,
                                         const cl_event*, cl_event* event) {
  if (waits != 0 || event != nullptr || data == nullptr) return CL_INVALID_VALUE;
  return ForPieces(size, [&](size_t at, size_t bytes) {
    HostCall call = CallOf(kEnqueueReadBuffer);
    call.Number(NumberOf(queue)).Number(NumberOf(buffer)).Fixed().Number(offset + at).Fixed();
    call.Out(static_cast<std::byte*>(data) + at, bytes).Fixed().Fixed().Fixed();
    return CodeOf(call);
  });
}

RUNNEL_EXPORT cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool,
                                          size_t offset, size_t size, const void* data,
                                          cl_uint waits, const cl_event*, cl_event* event) {
  if (waits != 0 || event != nullptr || data == nullptr) return CL_INVALID_VALUE;
  return ForPieces(size, [&](size_t at, size_t bytes) {
    HostCall call = CallOf(kEnqueueWriteBuffer);
    call.Number(NumberOf(queue)).Number(NumberOf(buffer)).Fixed().Number(offset + at).Fixed();
    call.In(static_cast<const std::byte*>(data) + at, bytes).Fixed().Fixed().Fixed();
    return CodeOf(call);
  });
}

RUNNEL_EXPORT cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to,
                                         size_t from_offset, size_t to_offset, size_t size,
                                         cl_uint waits, const cl_event*, cl_event* event) {
  if (waits != 0 || event != nullptr) return CL_INVALID_VALUE;
  HostCall call = CallOf(kEnqueueCopyBuffer);
  call.Number(NumberOf(queue)).Number(NumberOf(from)).Number(NumberOf(to));
  call.Number(from_offset).Number(to_offset).Number(size).Fixed().Fixed().Fixed();
  return CodeOf(call);
}

RUNNEL_EXPORT cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void* pattern,
                                         size_t pattern_size, size_t offset, size_t size,
                                         cl_uint waits, const cl_event*, cl_event* event) {
  if (waits != 0 || event != nullptr || pattern == nullptr) return CL_INVALID_VALUE;
  HostCall call = CallOf(kEnqueueFillBuffer);
  call.Number(NumberOf(queue)).Number(NumberOf(buffer)).In(pattern, pattern_size).Fixed();
  call.Number(offset).Number(size).Fixed().Fixed().Fixed();
  return CodeOf(call);
}

// A copy, which goes back when it is unmapped.
RUNNEL_EXPORT void* clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool,
                                       cl_map_flags flags, size_t offset, size_t size, cl_uint,
                                       const cl_event*, cl_event*, cl_int* error) {
  CopiedMap map = {buffer, offset, (flags & CL_MAP_WRITE) != 0, std::vector<std::byte>(size + 64)};
  // As aligned as memory of the device is.
  const auto begin = reinterpret_cast<uintptr_t>(map.bytes.data());
  auto* at = reinterpret_cast<std::byte*>((begin + 63) / 64 * 64);
  const cl_int code =
      clEnqueueReadBuffer(queue, buffer, CL_TRUE, offset, size, at, 0, nullptr, nullptr);
  if (error != nullptr) *error = code;
  if (code != CL_SUCCESS) return nullptr;
  const std::lock_guard lock(TheHost().mutex);
  TheHost().maps[at] = std::move(map);
  return at;
}

RUNNEL_EXPORT cl_int clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem buffer, void* mapped,
                                             cl_uint, const cl_event*, cl_event*) {
  CopiedMap map;
  {
    const std::lock_guard lock(TheHost().mutex);
    const auto found = TheHost().maps.find(mapped);
    if (found == TheHost().maps.end() || found->second.buffer != buffer) return CL_INVALID_VALUE;
    map = std::move(found->second);
    TheHost().maps.erase(found);
  }
  if (!map.is_written) return CL_SUCCESS;
  return clEnqueueWriteBuffer(queue, buffer, CL_TRUE, map.offset, map.bytes.size() - 64, mapped, 0,
                              nullptr, nullptr);
}

}  // namespace runnel::opencl
