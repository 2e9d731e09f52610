// In the place of OpenCL's loader, for tests: its calls go to the vendor host that
// RUNNEL_TEST_VENDOR_HOST names, which loads the real one.

#include <cstdio>
#include <cstdlib>

#include "kernels/backends/opencl/hosted/use_host.h"

namespace {

// The host finds the real one.
constexpr char kRealLibrary[] = "/usr/lib/x86_64-linux-gnu/libOpenCL.so.1";

struct Starter {
  Starter() {
    const char* program = std::getenv("RUNNEL_TEST_VENDOR_HOST");
    if (program == nullptr) return;
    const absl::Status started = runnel::opencl::UseHost(program, {kRealLibrary});
    if (!started.ok()) std::fprintf(stderr, "%s\n", std::string(started.message()).c_str());
  }
} starter;

}  // namespace
