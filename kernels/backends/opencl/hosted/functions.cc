// The functions of OpenCL that the backend uses, as calls to the vendor host. Names and arguments
// are the standard's (OpenCL 1.2); what the backend does not use (events, callbacks, memory of the
// host in buffers) is refused.

#include "kernels/backends/opencl/device/handles.h"

#include <CL/cl_ext.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "kernels/backends/opencl/hosted/use_host.h"
#include "kernels/backends/vendor_host/host_process.h"

#define RUNNEL_EXPORT extern "C" __attribute__((visibility("default")))

namespace runnel::opencl {
namespace {

// Rows of the host's table.
enum Row : uint32_t {
#define HOST_FUNCTION(row, name, kinds) k##row,
#include "kernels/backends/vendor_host/opencl_functions.inc"
#undef HOST_FUNCTION
};

struct Map {
  cl_mem buffer = nullptr;
  size_t offset = 0;
  bool is_written = false;
  std::vector<std::byte> bytes;
};

// Never ends, as a library does not: objects that know it may go when the process does.
struct State {
  std::unique_ptr<HostProcess> host;
  // A handle as the backend sees it is none that it could make up from a number.
  uint64_t salt = 0;
  std::mutex mutex;
  std::set<cl_mem> memory;  // handles that an argument of a kernel may be
  std::map<void*, Map> maps;
};
State& TheState() {
  static auto* state = new State;
  return *state;
}

template <typename T>
T HandleFrom(uint64_t number) {
  return number == 0 ? nullptr : reinterpret_cast<T>(number ^ TheState().salt);
}
uint64_t NumberOf(const void* handle) {
  return handle == nullptr ? 0 : reinterpret_cast<uint64_t>(handle) ^ TheState().salt;
}
std::vector<uint64_t> NumbersOf(const void* handles, cl_uint count) {
  std::vector<uint64_t> numbers;
  for (cl_uint i = 0; i < count; ++i) {
    void* handle = nullptr;
    std::memcpy(&handle, static_cast<const std::byte*>(handles) + i * sizeof handle, sizeof handle);
    numbers.push_back(NumberOf(handle));
  }
  return numbers;
}

cl_int CodeOf(HostCall::Result result, const HostCall& call) {
  switch (result) {
    case HostCall::Result::kDone:
      return static_cast<cl_int>(call.reply().result);
    case HostCall::Result::kRefused:
      return CL_INVALID_VALUE;
    case HostCall::Result::kTooLarge:
      return CL_OUT_OF_HOST_MEMORY;
    case HostCall::Result::kLost:
      break;
  }
  return CL_DEVICE_NOT_AVAILABLE;
}
cl_int Code(HostCall& call) {
  const HostCall::Result result = call.Send();
  return CodeOf(result, call);
}

// The new object of a call.
template <typename T>
T Made(HostCall& call, cl_int* error) {
  const HostCall::Result result = call.Send();
  const bool is_done = result == HostCall::Result::kDone;
  const cl_int code = is_done ? call.reply().error : CodeOf(result, call);
  if (error != nullptr) *error = code;
  return is_done ? HandleFrom<T>(static_cast<uint64_t>(call.reply().result)) : nullptr;
}

bool HasHost() { return TheState().host != nullptr; }
HostCall CallOf(Row row) { return HostCall(*TheState().host, row); }

// What every question about an object is: (object, what, room, value, size).
cl_int Ask(HostCall& call, cl_uint what, size_t room, void* value, size_t* size) {
  call.Number(what).Fixed().Out(value, room).Out(size, sizeof *size);
  return Code(call);
}

cl_int ReleaseObject(Row row, const void* object) {
  if (object == nullptr) return CL_INVALID_VALUE;
  HostCall call = CallOf(row);
  call.Number(NumberOf(object));
  return Code(call);
}

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

absl::Status UseHost(const std::string& program, const std::vector<std::string>& libraries) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (state.host != nullptr) return absl::OkStatus();
  auto host = HostProcess::Start({program, "opencl", libraries});
  if (!host.ok()) return host.status();
  std::random_device random;
  state.salt = uint64_t{1} << 63 | uint64_t{random()} << 31 | random() | 1;
  state.host = *std::move(host);
  return absl::OkStatus();
}

HostUse UseOfHost() {
  if (!HasHost()) return {};
  const HostProcess& host = *TheState().host;
  return {host.loaded(), host.pid(), host.copied_bytes()};
}

RUNNEL_EXPORT cl_int clGetPlatformIDs(cl_uint room, cl_platform_id* platforms, cl_uint* count) {
  if (!HasHost()) return CL_PLATFORM_NOT_FOUND_KHR;
  std::vector<uint64_t> numbers(platforms == nullptr ? 0 : room);
  HostCall call = CallOf(kGetPlatformIDs);
  call.Fixed()
      .Out(numbers.empty() ? nullptr : numbers.data(), numbers.size() * sizeof(uint64_t))
      .Out(count, sizeof *count);
  const cl_int code = Code(call);
  for (size_t i = 0; code == CL_SUCCESS && i < numbers.size(); ++i)
    platforms[i] = HandleFrom<cl_platform_id>(numbers[i]);
  return code;
}

RUNNEL_EXPORT cl_int clGetPlatformInfo(cl_platform_id platform, cl_platform_info what, size_t room,
                                       void* value, size_t* size) {
  HostCall call = CallOf(kGetPlatformInfo);
  return Ask(call.Number(NumberOf(platform)), what, room, value, size);
}

RUNNEL_EXPORT cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint room,
                                    cl_device_id* devices, cl_uint* count) {
  std::vector<uint64_t> numbers(devices == nullptr ? 0 : room);
  HostCall call = CallOf(kGetDeviceIDs);
  call.Number(NumberOf(platform))
      .Number(type)
      .Fixed()
      .Out(numbers.empty() ? nullptr : numbers.data(), numbers.size() * sizeof(uint64_t))
      .Out(count, sizeof *count);
  const cl_int code = Code(call);
  for (size_t i = 0; code == CL_SUCCESS && i < numbers.size(); ++i)
    devices[i] = HandleFrom<cl_device_id>(numbers[i]);
  return code;
}

RUNNEL_EXPORT cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t room,
                                     void* value, size_t* size) {
  HostCall call = CallOf(kGetDeviceInfo);
  const cl_int code = Ask(call.Number(NumberOf(device)), what, room, value, size);
  // The device may share its host's memory, but not ours.
  const cl_bool no = CL_FALSE;
  if (code == CL_SUCCESS && what == CL_DEVICE_HOST_UNIFIED_MEMORY && value != nullptr)
    std::memcpy(value, &no, std::min(room, sizeof no));
  return code;
}

RUNNEL_EXPORT cl_context clCreateContext(
    const cl_context_properties* properties, cl_uint count, const cl_device_id* devices,
    void(CL_CALLBACK* notify)(const char*, const void*, size_t, void*), void*, cl_int* error) {
  if (notify != nullptr) {
    if (error != nullptr) *error = CL_INVALID_VALUE;
    return nullptr;
  }
  std::vector<uint64_t> pairs;
  for (; properties != nullptr && *properties != 0; properties += 2) {
    pairs.push_back(static_cast<uint64_t>(properties[0]));
    pairs.push_back(NumberOf(reinterpret_cast<const void*>(properties[1])));
  }
  pairs.push_back(0);
  const std::vector<uint64_t> numbers = NumbersOf(devices, count);
  HostCall call = CallOf(kCreateContext);
  call.In(pairs.data(), pairs.size() * sizeof(uint64_t)).Fixed();
  call.In(numbers.data(), numbers.size() * sizeof(uint64_t)).Fixed().Fixed().Fixed();
  return Made<cl_context>(call, error);
}

RUNNEL_EXPORT cl_int clReleaseContext(cl_context context) {
  return ReleaseObject(kReleaseContext, context);
}

RUNNEL_EXPORT cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                                    cl_command_queue_properties properties,
                                                    cl_int* error) {
  HostCall call = CallOf(kCreateCommandQueue);
  call.Number(NumberOf(context)).Number(NumberOf(device)).Number(properties).Fixed();
  return Made<cl_command_queue>(call, error);
}

RUNNEL_EXPORT cl_int clReleaseCommandQueue(cl_command_queue queue) {
  return ReleaseObject(kReleaseCommandQueue, queue);
}
RUNNEL_EXPORT cl_int clFlush(cl_command_queue queue) { return ReleaseObject(kFlush, queue); }
RUNNEL_EXPORT cl_int clFinish(cl_command_queue queue) { return ReleaseObject(kFinish, queue); }

RUNNEL_EXPORT cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void* host,
                                    cl_int* error) {
  if (host != nullptr) {
    if (error != nullptr) *error = CL_INVALID_VALUE;
    return nullptr;
  }
  cl_mem made = nullptr;
  {
    HostCall call = CallOf(kCreateBuffer);
    call.Number(NumberOf(context)).Number(flags).Number(size).Fixed().Fixed();
    made = Made<cl_mem>(call, error);
  }
  const std::lock_guard lock(TheState().mutex);
  if (made != nullptr) TheState().memory.insert(made);
  return made;
}

RUNNEL_EXPORT cl_mem clCreateImage(cl_context context, cl_mem_flags flags,
                                   const cl_image_format* format, const cl_image_desc* shape,
                                   void* host, cl_int* error) {
  static_assert(sizeof(cl_image_desc) == 72 && sizeof(cl_image_format) == 8);
  if (host != nullptr || shape == nullptr) {
    if (error != nullptr) *error = CL_INVALID_VALUE;
    return nullptr;
  }
  cl_image_desc sent = *shape;
  sent.buffer = reinterpret_cast<cl_mem>(NumberOf(shape->buffer));
  cl_mem made = nullptr;
  {
    HostCall call = CallOf(kCreateImage);
    call.Number(NumberOf(context)).Number(flags).In(format, sizeof *format);
    call.In(&sent, sizeof sent).Fixed().Fixed();
    made = Made<cl_mem>(call, error);
  }
  const std::lock_guard lock(TheState().mutex);
  if (made != nullptr) TheState().memory.insert(made);
  return made;
}

RUNNEL_EXPORT cl_int clGetMemObjectInfo(cl_mem memory, cl_mem_info what, size_t room, void* value,
                                        size_t* size) {
  HostCall call = CallOf(kGetMemObjectInfo);
  return Ask(call.Number(NumberOf(memory)), what, room, value, size);
}

RUNNEL_EXPORT cl_int clReleaseMemObject(cl_mem memory) {
  {
    const std::lock_guard lock(TheState().mutex);
    TheState().memory.erase(memory);
  }
  return ReleaseObject(kReleaseMemObject, memory);
}

// One text.
RUNNEL_EXPORT cl_program clCreateProgramWithSource(cl_context context, cl_uint count,
                                                   const char** texts, const size_t* sizes,
                                                   cl_int* error) {
  if (count != 1) {
    if (error != nullptr) *error = CL_INVALID_VALUE;
    return nullptr;
  }
  const size_t size = sizes != nullptr && sizes[0] != 0 ? sizes[0] : std::strlen(texts[0]);
  HostCall call = CallOf(kCreateProgramWithSource);
  call.Number(NumberOf(context)).Fixed().In(texts[0], size).Fixed().Fixed();
  return Made<cl_program>(call, error);
}

// For one device.
RUNNEL_EXPORT cl_program clCreateProgramWithBinary(cl_context context, cl_uint count,
                                                   const cl_device_id* devices, const size_t* sizes,
                                                   const unsigned char** binaries, cl_int* status,
                                                   cl_int* error) {
  if (count != 1) {
    if (error != nullptr) *error = CL_INVALID_VALUE;
    return nullptr;
  }
  const uint64_t device = NumberOf(devices[0]);
  HostCall call = CallOf(kCreateProgramWithBinary);
  call.Number(NumberOf(context)).Fixed().In(&device, sizeof device).Fixed();
  call.In(binaries[0], sizes[0]).In(nullptr, 0).Fixed();
  if (status != nullptr) *status = CL_SUCCESS;
  return Made<cl_program>(call, error);
}

RUNNEL_EXPORT cl_int clBuildProgram(cl_program program, cl_uint count, const cl_device_id* devices,
                                    const char* options,
                                    void(CL_CALLBACK* notify)(cl_program, void*), void*) {
  if (notify != nullptr) return CL_INVALID_VALUE;
  const std::vector<uint64_t> numbers = NumbersOf(devices, count);
  HostCall call = CallOf(kBuildProgram);
  call.Number(NumberOf(program)).Fixed();
  call.In(numbers.data(), numbers.size() * sizeof(uint64_t));
  call.In(options, options == nullptr ? 0 : std::strlen(options) + 1).Fixed().Fixed();
  return Code(call);
}

RUNNEL_EXPORT cl_int clGetProgramBuildInfo(cl_program program, cl_device_id device,
                                           cl_program_build_info what, size_t room, void* value,
                                           size_t* size) {
  HostCall call = CallOf(kGetProgramBuildInfo);
  return Ask(call.Number(NumberOf(program)).Number(NumberOf(device)), what, room, value, size);
}

// The value of CL_PROGRAM_BINARIES is addresses where the binaries go: here of one device.
RUNNEL_EXPORT cl_int clGetProgramInfo(cl_program program, cl_program_info what, size_t room,
                                      void* value, size_t* size) {
  if (what != CL_PROGRAM_BINARIES || value == nullptr) {
    HostCall call = CallOf(kGetProgramInfo);
    return Ask(call.Number(NumberOf(program)), what, room, value, size);
  }
  size_t bytes = 0;
  const cl_int code =
      clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr);
  if (code != CL_SUCCESS || room != sizeof(void*)) return CL_INVALID_VALUE;
  HostCall call = CallOf(kGetProgramBinary);
  call.Number(NumberOf(program)).Fixed().Fixed();
  call.Out(*static_cast<unsigned char**>(value), bytes).Out(size, sizeof *size);
  return Code(call);
}

RUNNEL_EXPORT cl_int clReleaseProgram(cl_program program) {
  return ReleaseObject(kReleaseProgram, program);
}

RUNNEL_EXPORT cl_kernel clCreateKernel(cl_program program, const char* name, cl_int* error) {
  HostCall call = CallOf(kCreateKernel);
  call.Number(NumberOf(program)).In(name, std::strlen(name) + 1).Fixed();
  return Made<cl_kernel>(call, error);
}

// Its program alone.
RUNNEL_EXPORT cl_int clGetKernelInfo(cl_kernel kernel, cl_kernel_info what, size_t room,
                                     void* value, size_t* size) {
  if (what != CL_KERNEL_PROGRAM || room < sizeof(cl_program) || value == nullptr)
    return CL_INVALID_VALUE;
  uint64_t number = 0;
  HostCall call = CallOf(kGetKernelProgram);
  call.Number(NumberOf(kernel)).Fixed().Fixed().Out(&number, sizeof number);
  call.Out(size, sizeof *size);
  const cl_int code = Code(call);
  const auto program = HandleFrom<cl_program>(number);
  if (code == CL_SUCCESS) std::memcpy(value, &program, sizeof program);
  return code;
}

RUNNEL_EXPORT cl_int clSetKernelArg(cl_kernel kernel, cl_uint at, size_t size, const void* value) {
  if (value == nullptr) return CL_INVALID_VALUE;
  bool is_handle = false;
  cl_mem memory = nullptr;
  if (size == sizeof memory) {
    std::memcpy(&memory, value, sizeof memory);
    const std::lock_guard lock(TheState().mutex);
    is_handle = TheState().memory.count(memory) > 0;
  }
  HostCall call = CallOf(kSetKernelArg);
  call.Number(NumberOf(kernel)).Number(at).Fixed();
  if (is_handle) {
    call.Number(NumberOf(memory) | HOST_IS_HANDLE);
  } else {
    call.In(value, size);
  }
  return Code(call);
}

RUNNEL_EXPORT cl_int clReleaseKernel(cl_kernel kernel) {
  return ReleaseObject(kReleaseKernel, kernel);
}

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
  return Code(call);
}

RUNNEL_EXPORT cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool,
                                         size_t offset, size_t size, void* data, cl_uint waits,
                                         const cl_event*, cl_event* event) {
  if (waits != 0 || event != nullptr || data == nullptr) return CL_INVALID_VALUE;
  return ForPieces(size, [&](size_t at, size_t bytes) {
    HostCall call = CallOf(kEnqueueReadBuffer);
    call.Number(NumberOf(queue)).Number(NumberOf(buffer)).Fixed().Number(offset + at).Fixed();
    call.Out(static_cast<std::byte*>(data) + at, bytes).Fixed().Fixed().Fixed();
    return Code(call);
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
    return Code(call);
  });
}

RUNNEL_EXPORT cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to,
                                         size_t from_offset, size_t to_offset, size_t size,
                                         cl_uint waits, const cl_event*, cl_event* event) {
  if (waits != 0 || event != nullptr) return CL_INVALID_VALUE;
  HostCall call = CallOf(kEnqueueCopyBuffer);
  call.Number(NumberOf(queue)).Number(NumberOf(from)).Number(NumberOf(to));
  call.Number(from_offset).Number(to_offset).Number(size).Fixed().Fixed().Fixed();
  return Code(call);
}

RUNNEL_EXPORT cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void* pattern,
                                         size_t pattern_size, size_t offset, size_t size,
                                         cl_uint waits, const cl_event*, cl_event* event) {
  if (waits != 0 || event != nullptr || pattern == nullptr) return CL_INVALID_VALUE;
  HostCall call = CallOf(kEnqueueFillBuffer);
  call.Number(NumberOf(queue)).Number(NumberOf(buffer)).In(pattern, pattern_size).Fixed();
  call.Number(offset).Number(size).Fixed().Fixed().Fixed();
  return Code(call);
}

// A copy, which goes back when it is unmapped.
RUNNEL_EXPORT void* clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool,
                                       cl_map_flags flags, size_t offset, size_t size, cl_uint,
                                       const cl_event*, cl_event*, cl_int* error) {
  Map map = {buffer, offset, (flags & CL_MAP_WRITE) != 0, std::vector<std::byte>(size + 64)};
  // As aligned as memory of the device is.
  const auto begin = reinterpret_cast<uintptr_t>(map.bytes.data());
  auto* at = reinterpret_cast<std::byte*>((begin + 63) / 64 * 64);
  const cl_int code =
      clEnqueueReadBuffer(queue, buffer, CL_TRUE, offset, size, at, 0, nullptr, nullptr);
  if (error != nullptr) *error = code;
  if (code != CL_SUCCESS) return nullptr;
  const std::lock_guard lock(TheState().mutex);
  TheState().maps[at] = std::move(map);
  return at;
}

RUNNEL_EXPORT cl_int clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem buffer, void* mapped,
                                             cl_uint, const cl_event*, cl_event*) {
  Map map;
  {
    const std::lock_guard lock(TheState().mutex);
    const auto found = TheState().maps.find(mapped);
    if (found == TheState().maps.end() || found->second.buffer != buffer) return CL_INVALID_VALUE;
    map = std::move(found->second);
    TheState().maps.erase(found);
  }
  if (!map.is_written) return CL_SUCCESS;
  return clEnqueueWriteBuffer(queue, buffer, CL_TRUE, map.offset, map.bytes.size() - 64, mapped, 0,
                              nullptr, nullptr);
}

}  // namespace runnel::opencl

RUNNEL_EXPORT const char* runnel_use_opencl_host(const char* program,
                                                 const char* const* libraries) {
  static auto* why = new std::string;
  std::vector<std::string> names;
  for (; libraries != nullptr && *libraries != nullptr; ++libraries) names.emplace_back(*libraries);
  const absl::Status status = runnel::opencl::UseHost(program, names);
  *why = std::string(status.message());
  return status.ok() ? nullptr : why->c_str();
}
