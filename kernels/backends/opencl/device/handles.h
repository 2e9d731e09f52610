#pragma once

// OpenCL's objects, released when their handle goes.

// The version whose functions we use; the headers know later ones.
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>

#include <memory>
#include <type_traits>

namespace runnel::opencl {

struct Release {
  void operator()(cl_context context) const { clReleaseContext(context); }
  void operator()(cl_command_queue queue) const { clReleaseCommandQueue(queue); }
  void operator()(cl_program program) const { clReleaseProgram(program); }
  void operator()(cl_kernel kernel) const { clReleaseKernel(kernel); }
  void operator()(cl_mem memory) const { clReleaseMemObject(memory); }
};
template <typename T>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, Release>;

// "CL_OUT_OF_RESOURCES", or the number of a code that has no name here.
const char* NameOfError(cl_int code);

}  // namespace runnel::opencl
