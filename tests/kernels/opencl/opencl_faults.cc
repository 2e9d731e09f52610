#include "tests/kernels/opencl/opencl_faults.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>

#include "kernels/backends/opencl/device/handles.h"

namespace runnel {
namespace {

int Given(const char* variable) {
  const char* given = std::getenv(variable);
  return given == nullptr ? -1 : std::atoi(given);
}

std::atomic<int>& KernelsLeft() {
  static std::atomic<int> left = Given("RUNNEL_TEST_OPENCL_KERNELS");
  return left;
}

std::atomic<int>& Enqueued() {
  static std::atomic<int> enqueued = 0;
  return enqueued;
}

std::atomic<int>& BuffersLeft() {
  static std::atomic<int> left = Given("RUNNEL_TEST_OPENCL_BUFFERS");
  return left;
}

bool KernelsDoNothing() {
  static const bool nothing = Given("RUNNEL_TEST_OPENCL_NOTHING") > 0;
  return nothing;
}

// Of SpoilBuilds. One thread at a time makes programs and runs kernels.
struct Spoilt {
  std::string option;
  cl_int code = CL_SUCCESS;
  std::set<cl_program> programs;

  bool Has(cl_kernel kernel) const {
    cl_program program = nullptr;
    if (option.empty()) return false;
    clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof program, &program, nullptr);
    return programs.count(program) > 0;
  }
};
Spoilt& TheSpoilt() {
  static Spoilt spoilt;
  return spoilt;
}

std::atomic<int>& BuildRefusal() {
  static std::atomic<int> code = CL_SUCCESS;
  return code;
}

std::string& RefusedOption() {
  static std::string option;
  return option;
}

std::string& ClaimedExtension() {
  static std::string extension;
  return extension;
}

std::atomic<bool>& Hangs() {
  static std::atomic<bool> hangs = false;
  return hangs;
}

std::atomic<int>& GroupLimit() {
  static std::atomic<int> items = 0;
  return items;
}

std::string& LimitedKernel() {
  static std::string name;
  return name;
}

bool IsLimited(cl_kernel kernel) {
  char name[256] = {};
  clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name - 1, name, nullptr);
  return LimitedKernel().empty() || LimitedKernel() == name;
}

std::atomic<int>& MemoryMade() {
  static std::atomic<int> made = 0;
  return made;
}

std::atomic<int>& SourcesMade() {
  static std::atomic<int> made = 0;
  return made;
}

// The loader's, behind ours.
template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(
      dlsym(dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_NOLOAD), name));
}

}  // namespace

void LoseDeviceAfter(int kernels) { KernelsLeft() = kernels; }

int KernelsEnqueued() { return Enqueued(); }

void SpoilBuilds(const std::string& option, int code) { TheSpoilt() = {option, code, {}}; }

void RefuseBuilds(int code, const std::string& option) {
  RefusedOption() = option;
  BuildRefusal() = code;
}

void ClaimExtension(const std::string& extension) { ClaimedExtension() = extension; }

void LimitGroups(int items, const std::string& kernel) {
  LimitedKernel() = kernel;
  GroupLimit() = items;
}

void HangOnFinish() { Hangs() = true; }

int BuffersMade() { return MemoryMade(); }

int SourcesBuilt() { return SourcesMade(); }

}  // namespace runnel

// In a program of its own, or loaded before its libraries, this one is found first. The names of
// its arguments are the standard's.
extern "C" __attribute__((visibility("default"))) cl_int clEnqueueNDRangeKernel(
    cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t* offset,
    const size_t* global, const size_t* local, cl_uint waits, const cl_event* wait_list,
    cl_event* event) {
  static auto* const real =
      runnel::Real<decltype(clEnqueueNDRangeKernel)>("clEnqueueNDRangeKernel");
  ++runnel::Enqueued();
  std::atomic<int>& left = runnel::KernelsLeft();
  if (left == 0) return CL_OUT_OF_RESOURCES;
  if (left > 0) --left;
  if (runnel::KernelsDoNothing()) return CL_SUCCESS;
  if (runnel::TheSpoilt().Has(kernel)) {
    if (runnel::TheSpoilt().code != runnel::kKernelHangs) return runnel::TheSpoilt().code;
    runnel::HangOnFinish();
    return CL_SUCCESS;
  }
  return real(queue, kernel, dimensions, offset, global, local, waits, wait_list, event);
}

extern "C" __attribute__((visibility("default"))) cl_mem clCreateBuffer(cl_context context,
                                                                        cl_mem_flags flags,
                                                                        size_t size, void* host,
                                                                        cl_int* error) {
  static auto* const real = runnel::Real<decltype(clCreateBuffer)>("clCreateBuffer");
  ++runnel::MemoryMade();
  std::atomic<int>& left = runnel::BuffersLeft();
  if (left == 0) {
    if (error != nullptr) *error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return nullptr;
  }
  if (left > 0) --left;
  return real(context, flags, size, host, error);
}

extern "C" __attribute__((visibility("default"))) cl_int clBuildProgram(
    cl_program program, cl_uint count, const cl_device_id* devices, const char* options,
    void(CL_CALLBACK* notify)(cl_program, void*), void* data) {
  static auto* const real = runnel::Real<decltype(clBuildProgram)>("clBuildProgram");
  const std::string& refused = runnel::RefusedOption();
  if (const int refusal = runnel::BuildRefusal();
      refusal != CL_SUCCESS && std::strstr(options, refused.c_str()) != nullptr)
    return refusal;
  runnel::Spoilt& spoilt = runnel::TheSpoilt();
  // A program that is gone may have left its address to this one.
  spoilt.programs.erase(program);
  if (!spoilt.option.empty() && std::strstr(options, spoilt.option.c_str()) != nullptr)
    spoilt.programs.insert(program);
  return real(program, count, devices, options, notify, data);
}

extern "C" __attribute__((visibility("default"))) cl_program clCreateProgramWithSource(
    cl_context context, cl_uint count, const char** texts, const size_t* sizes, cl_int* error) {
  static auto* const real =
      runnel::Real<decltype(clCreateProgramWithSource)>("clCreateProgramWithSource");
  ++runnel::SourcesMade();
  return real(context, count, texts, sizes, error);
}

extern "C" __attribute__((visibility("default"))) cl_int clGetDeviceInfo(cl_device_id device,
                                                                         cl_device_info what,
                                                                         size_t size, void* value,
                                                                         size_t* needed) {
  static auto* const real = runnel::Real<decltype(clGetDeviceInfo)>("clGetDeviceInfo");
  if (const char* language = std::getenv("RUNNEL_TEST_OPENCL_LANGUAGE");
      language != nullptr && what == CL_DEVICE_OPENCL_C_VERSION) {
    const size_t bytes = std::strlen(language) + 1;
    if (needed != nullptr) *needed = bytes;
    if (value != nullptr && size >= bytes) std::memcpy(value, language, bytes);
    return CL_SUCCESS;
  }
  const std::string& claimed = runnel::ClaimedExtension();
  if (what != CL_DEVICE_EXTENSIONS || claimed.empty())
    return real(device, what, size, value, needed);
  size_t own = 0;
  const cl_int code = real(device, what, 0, nullptr, &own);
  if (code != CL_SUCCESS) return code;
  std::string text(own, ' ');
  real(device, what, own, text.data(), nullptr);
  text = claimed + " " + text.c_str();
  if (needed != nullptr) *needed = text.size() + 1;
  if (value == nullptr) return CL_SUCCESS;
  if (size <= text.size()) return CL_INVALID_VALUE;
  std::memcpy(value, text.c_str(), text.size() + 1);
  return CL_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) cl_mem clCreateImage(
    cl_context context, cl_mem_flags flags, const cl_image_format* format,
    const cl_image_desc* shape, void* host, cl_int* error) {
  static auto* const real = runnel::Real<decltype(clCreateImage)>("clCreateImage");
  ++runnel::MemoryMade();
  return real(context, flags, format, shape, host, error);
}

extern "C" __attribute__((visibility("default"))) cl_int clGetKernelWorkGroupInfo(
    cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info what, size_t size, void* value,
    size_t* needed) {
  static auto* const real =
      runnel::Real<decltype(clGetKernelWorkGroupInfo)>("clGetKernelWorkGroupInfo");
  const cl_int code = real(kernel, device, what, size, value, needed);
  const auto limit = static_cast<size_t>(runnel::GroupLimit().load());
  if (code == CL_SUCCESS && what == CL_KERNEL_WORK_GROUP_SIZE && limit > 0 &&
      runnel::IsLimited(kernel))
    std::memcpy(value, &limit, sizeof limit);
  return code;
}

extern "C" __attribute__((visibility("default"))) cl_int clFinish(cl_command_queue queue) {
  static auto* const real = runnel::Real<decltype(clFinish)>("clFinish");
  while (runnel::Hangs()) pause();
  return real(queue);
}
