#include "tests/kernels/opencl_faults.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

#include "kernels/opencl/handles.h"

namespace runnel {
namespace {

std::atomic<int>& KernelsLeft() {
  static std::atomic<int> left = [] {
    const char* given = std::getenv("RUNNEL_TEST_OPENCL_KERNELS");
    return given == nullptr ? -1 : std::atoi(given);
  }();
  return left;
}

}  // namespace

void LoseDeviceAfter(int kernels) { KernelsLeft() = kernels; }

}  // namespace runnel

// In a program of its own, or loaded before its libraries, this one is found first. The names of
// its arguments are the standard's.
extern "C" __attribute__((visibility("default"))) cl_int clEnqueueNDRangeKernel(
    cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t* offset,
    const size_t* global, const size_t* local, cl_uint waits, const cl_event* wait_list,
    cl_event* event) {
  using Function = decltype(clEnqueueNDRangeKernel);
  static auto* const real = reinterpret_cast<Function*>(
      dlsym(dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_NOLOAD), "clEnqueueNDRangeKernel"));
  std::atomic<int>& left = runnel::KernelsLeft();
  if (left == 0) return CL_OUT_OF_RESOURCES;
  if (left > 0) --left;
  return real(queue, kernel, dimensions, offset, global, local, waits, wait_list, event);
}
