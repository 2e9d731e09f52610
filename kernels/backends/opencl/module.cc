// The shared object of backend "opencl", so that a worker needs no OpenCL library to start
// (kernels/backends/host/loaded_backend.h).

#include "kernels/backends/host/loaded_backend.h"
#include "kernels/backends/opencl/opencl_backend.h"

namespace runnel {

extern "C" __attribute__((visibility("default"))) const BackendRow* runnel_backend_row(
    int contract) {
  static constexpr BackendRow row = {"opencl", "an OpenCL device", MakeOpenClBackend};
  return contract == kBackendContract ? &row : nullptr;
}

}  // namespace runnel
