#include "kernels/backends/opencl/device/drivers.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

namespace runnel::opencl {
namespace {

// Files that name a driver each, as OpenCL's loader finds them.
std::vector<std::filesystem::path> DriverFiles() {
  std::filesystem::path folder = "/etc/OpenCL/vendors";
  for (const char* name : {"OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"}) {
    const char* given = std::getenv(name);
    if (given == nullptr) continue;
    folder = given;
    break;
  }
  std::error_code error;
  // The variable may also name a driver itself.
  if (std::filesystem::is_regular_file(folder, error)) return {folder};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".icd") files.push_back(entry.path());
  }
  return files;
}

}  // namespace

bool HasDriver() { return !DriverFiles().empty(); }

bool MayHaveGpu(const BackendOptions& options) {
  const std::vector<std::filesystem::path> files = DriverFiles();
  if (!options.Get("opencl", "device").empty()) return !files.empty();
  return std::any_of(files.begin(), files.end(), [](const std::filesystem::path& file) {
    return file.filename().string().find("pocl") == std::string::npos;
  });
}

std::string DriverStamp() {
  std::vector<std::filesystem::path> files = DriverFiles();
  std::sort(files.begin(), files.end());
  std::string stamp;
  for (const std::filesystem::path& path : files) {
    struct stat file = {};
    if (stat(path.c_str(), &file) != 0) continue;
    absl::StrAppend(&stamp, path.string(), " ", int64_t{file.st_size}, " ",
                    int64_t{file.st_mtim.tv_sec}, ".", int64_t{file.st_mtim.tv_nsec}, " ");
  }
  return stamp;
}

}  // namespace runnel::opencl
