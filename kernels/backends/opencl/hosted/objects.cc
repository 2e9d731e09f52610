// Which host is used, and the functions about OpenCL's objects.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backends/opencl/hosted/host_state.h"
#include "kernels/backends/opencl/hosted/use_host.h"

namespace runnel::opencl {
namespace {

// What the host has of OpenCL's headers, and the sizes of its arguments (host_wire.h).
static_assert(kOpenClPlatformProperty == CL_CONTEXT_PLATFORM);
static_assert(kOpenClBinarySizes == CL_PROGRAM_BINARY_SIZES);
static_assert(kOpenClBinaries == CL_PROGRAM_BINARIES);
static_assert(kOpenClKernelProgram == CL_KERNEL_PROGRAM);
static_assert(kOpenClImageShapeBytes == sizeof(cl_image_desc));
static_assert(kOpenClImageBufferAt == offsetof(cl_image_desc, buffer));
static_assert(sizeof(cl_image_format) == 8 && sizeof(cl_mem) == 8 && sizeof(size_t) == 8);
static_assert(sizeof(cl_context_properties) == 8 && sizeof(cl_int) == 4);

constexpr cl_int kNoPlatform = -1001;  // CL_PLATFORM_NOT_FOUND_KHR

// What every code is that the host did not get from a function.
cl_int CodeWithout(HostCall::Result result) {
  switch (result) {
    case HostCall::Result::kRefused:
      return CL_INVALID_VALUE;
    case HostCall::Result::kTooLarge:
      return CL_OUT_OF_HOST_MEMORY;
    default:
      return CL_DEVICE_NOT_AVAILABLE;
  }
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

// The new object of a call.
template <typename T>
T Made(HostCall& call, cl_int* error) {
  const HostCall::Result result = call.Send();
  const bool is_done = result == HostCall::Result::kDone;
  if (error != nullptr) *error = is_done ? call.reply().error : CodeWithout(result);
  return is_done ? HandleFrom<T>(static_cast<uint64_t>(call.reply().result)) : nullptr;
}

cl_mem MadeMemory(HostCall& call, cl_int* error) {
  const auto made = Made<cl_mem>(call, error);
  const std::lock_guard lock(TheHost().mutex);
  if (made != nullptr) TheHost().memory.insert(made);
  return made;
}

// After a host was lost, whoever looks for devices anew gets the next one.
bool HasLivingHost() {
  HostProcess* const host = TheHost().host;
  if (host == nullptr || !host->is_lost()) return host != nullptr;
  HostProcessOptions options;
  {
    const std::lock_guard lock(TheHost().mutex);
    options = TheHost().options;
  }
  return UseHost(options.program, options.candidates).ok();
}

// What every question about an object is: (object, what, room, value, size).
cl_int Ask(HostCall& call, cl_uint what, size_t room, void* value, size_t* size) {
  call.Number(what).Fixed().Out(value, room).Out(size, sizeof *size);
  return CodeOf(call);
}

}  // namespace

HostState& TheHost() {
  static auto* state = new HostState;
  return *state;
}

cl_int CodeOf(HostCall& call) {
  const HostCall::Result result = call.Send();
  return result == HostCall::Result::kDone ? static_cast<cl_int>(call.reply().result)
                                           : CodeWithout(result);
}

cl_int CallWith(HostRow row, const void* object) {
  if (object == nullptr) return CL_INVALID_VALUE;
  HostCall call = CallOf(row);
  call.Number(NumberOf(object));
  return CodeOf(call);
}

absl::Status UseHost(const std::string& program, const std::vector<std::string>& libraries) {
  HostState& state = TheHost();
  const std::lock_guard lock(state.mutex);
  HostProcess* const before = state.host;
  if (before != nullptr && !before->is_lost()) return absl::OkStatus();
  state.options = {program, "opencl", libraries};
  auto host = HostProcess::Start(state.options);
  if (!host.ok()) return host.status();
  std::random_device random;
  state.salt = uint64_t{1} << 63 | uint64_t{random()} << 31 | random() | 1;
  state.host = host->release();
  return absl::OkStatus();
}

HostUse UseOfHost() {
  if (TheHost().host == nullptr) return {};
  const HostProcess& host = *TheHost().host;
  return {host.loaded(), host.pid(), host.copied_bytes()};
}

RUNNEL_EXPORT cl_int clGetPlatformIDs(cl_uint room, cl_platform_id* platforms, cl_uint* count) {
  if (!HasLivingHost()) return kNoPlatform;
  std::vector<uint64_t> numbers(platforms == nullptr ? 0 : room);
  HostCall call = CallOf(kGetPlatformIDs);
  call.Fixed()
      .Out(numbers.empty() ? nullptr : numbers.data(), numbers.size() * sizeof(uint64_t))
      .Out(count, sizeof *count);
  const cl_int code = CodeOf(call);
  for (size_t i = 0; code == CL_SUCCESS && i < numbers.size(); ++i)
    platforms[i] = HandleFrom<cl_platform_id>(numbers[i]);
  return code;
}

// Its name says through what it was reached.
RUNNEL_EXPORT cl_int clGetPlatformInfo(cl_platform_id platform, cl_platform_info what, size_t room,
                                       void* value, size_t* size) {
  char text[256] = {};
  cl_int code = CL_SUCCESS;
  {
    HostCall call = CallOf(kGetPlatformInfo);
    call.Number(NumberOf(platform));
    if (what != CL_PLATFORM_NAME) return Ask(call, what, room, value, size);
    size_t ignored = 0;
    code = Ask(call, what, sizeof text - 1, text, &ignored);
  }
  const std::string name =
      absl::StrCat(text, ", by vendor host with ", TheHost().host.load()->loaded());
  if (code != CL_SUCCESS) return code;
  if (size != nullptr) *size = name.size() + 1;
  if (value == nullptr || room == 0) return CL_SUCCESS;
  const size_t copied = std::min(room - 1, name.size());
  std::memcpy(value, name.data(), copied);
  static_cast<char*>(value)[copied] = 0;
  return CL_SUCCESS;
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
  const cl_int code = CodeOf(call);
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
  return CallWith(kReleaseContext, context);
}

RUNNEL_EXPORT cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                                    cl_command_queue_properties properties,
                                                    cl_int* error) {
  HostCall call = CallOf(kCreateCommandQueue);
  call.Number(NumberOf(context)).Number(NumberOf(device)).Number(properties).Fixed();
  return Made<cl_command_queue>(call, error);
}

RUNNEL_EXPORT cl_int clReleaseCommandQueue(cl_command_queue queue) {
  return CallWith(kReleaseCommandQueue, queue);
}
RUNNEL_EXPORT cl_int clFlush(cl_command_queue queue) { return CallWith(kFlush, queue); }
RUNNEL_EXPORT cl_int clFinish(cl_command_queue queue) { return CallWith(kFinish, queue); }

RUNNEL_EXPORT cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void* host,
                                    cl_int* error) {
  if (host != nullptr) {
    if (error != nullptr) *error = CL_INVALID_VALUE;
    return nullptr;
  }
  HostCall call = CallOf(kCreateBuffer);
  call.Number(NumberOf(context)).Number(flags).Number(size).Fixed().Fixed();
  return MadeMemory(call, error);
}

RUNNEL_EXPORT cl_mem clCreateImage(cl_context context, cl_mem_flags flags,
                                   const cl_image_format* format, const cl_image_desc* shape,
                                   void* host, cl_int* error) {
  if (host != nullptr || shape == nullptr) {
    if (error != nullptr) *error = CL_INVALID_VALUE;
    return nullptr;
  }
  cl_image_desc sent = *shape;
  sent.buffer = reinterpret_cast<cl_mem>(NumberOf(shape->buffer));
  HostCall call = CallOf(kCreateImage);
  call.Number(NumberOf(context)).Number(flags).In(format, sizeof *format);
  call.In(&sent, sizeof sent).Fixed().Fixed();
  return MadeMemory(call, error);
}

RUNNEL_EXPORT cl_int clGetMemObjectInfo(cl_mem memory, cl_mem_info what, size_t room, void* value,
                                        size_t* size) {
  HostCall call = CallOf(kGetMemObjectInfo);
  return Ask(call.Number(NumberOf(memory)), what, room, value, size);
}

RUNNEL_EXPORT cl_int clReleaseMemObject(cl_mem memory) {
  {
    const std::lock_guard lock(TheHost().mutex);
    TheHost().memory.erase(memory);
  }
  return CallWith(kReleaseMemObject, memory);
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
  return CodeOf(call);
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
  return CodeOf(call);
}

RUNNEL_EXPORT cl_int clReleaseProgram(cl_program program) {
  return CallWith(kReleaseProgram, program);
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
  const cl_int code = CodeOf(call);
  const auto program = HandleFrom<cl_program>(number);
  if (code == CL_SUCCESS) std::memcpy(value, &program, sizeof program);
  return code;
}

RUNNEL_EXPORT cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device,
                                              cl_kernel_work_group_info what, size_t room,
                                              void* value, size_t* size) {
  HostCall call = CallOf(kGetKernelWorkGroupInfo);
  return Ask(call.Number(NumberOf(kernel)).Number(NumberOf(device)), what, room, value, size);
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
