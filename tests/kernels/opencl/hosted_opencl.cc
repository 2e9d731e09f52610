// In the place of OpenCL's loader, for tests: its calls go to the vendor host that
// RUNNEL_TEST_VENDOR_HOST names, which loads the real one.

#include <cstdio>
#include <cstdlib>

#include "kernels/backends/opencl/hosted/use_host.h"

namespace {

struct Starter {
  Starter() {
    const char* program = std::getenv("RUNNEL_TEST_VENDOR_HOST");
    if (program == nullptr) return;
    const absl::Status started = runnel::opencl::UseHost(program, {RUNNEL_REAL_OPENCL});
    if (!started.ok()) std::fprintf(stderr, "%s\n", std::string(started.message()).c_str());
  }
} starter;

}  // namespace
