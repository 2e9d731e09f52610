#include "kernels/opencl/drivers.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace runnel::opencl {

bool HasDriver() {
  std::filesystem::path folder = "/etc/OpenCL/vendors";
  for (const char* name : {"OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"}) {
    const char* given = std::getenv(name);
    if (given == nullptr) continue;
    folder = given;
    break;
  }
  std::error_code error;
  // The variable may also name a driver itself.
  if (std::filesystem::is_regular_file(folder, error)) return true;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".icd") return true;
  }
  return false;
}

}  // namespace runnel::opencl
