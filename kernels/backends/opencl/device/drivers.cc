#include "kernels/backends/opencl/device/drivers.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace runnel::opencl {
namespace {

// OpenCL's loader by the names under which the system's linker knows it, and a driver of Mali.
constexpr const char* kNames[] = {"libOpenCL.so.1", "libOpenCL.so", "libGLES_mali.so",
                                  "libmali.so"};
// Where phones have their drivers, which are their own loaders: no .icd file names them. Facts of
// Android's file systems; not verified on hardware.
constexpr const char* kVendorPaths[] = {
    "/vendor/lib64/libOpenCL.so",        "/system/vendor/lib64/libOpenCL.so",
    "/vendor/lib64/egl/libGLES_mali.so", "/system/vendor/lib64/egl/libGLES_mali.so",
    "/vendor/lib64/libPVROCL.so",        "/system/lib64/libOpenCL.so"};

// What every library of OpenCL has.
constexpr char kAnyFunction[] = "clGetPlatformIDs";

#ifndef RUNNEL_LOADS_OPENCL
std::string WhyNotLoaded(const char*) { return "this build loads no libraries"; }
#else
// Empty: it is loaded. Names of a library that turns out to be another one are never made global.
std::string WhyNotLoaded(const char* library) {
  void* loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* why = dlerror();
    // It begins with the name itself.
    const std::string text = why == nullptr ? "no reason given" : why;
    const std::string name = absl::StrCat(library, ": ");
    return absl::StartsWith(text, name) ? text.substr(name.size()) : text;
  }
  const bool is_opencl = dlsym(loaded, kAnyFunction) != nullptr &&
                         dlopen(library, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE) != nullptr;
  dlclose(loaded);
  return is_opencl ? "" : absl::StrCat("has no ", kAnyFunction);
}
#endif

std::vector<std::filesystem::path> VendorLibraries() {
  std::vector<std::filesystem::path> found;
  for (const char* path : kVendorPaths) {
    if (access(path, R_OK) == 0) found.emplace_back(path);
  }
  return found;
}

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

bool HasDriver(const BackendOptions& options) {
  return !options.Get("opencl", "library").empty() || !DriverFiles().empty() ||
         !VendorLibraries().empty();
}

absl::Status LoadOpenClLibrary(const BackendOptions& options) {
  const std::string given(options.Get("opencl", "library"));
  std::vector<const char*> candidates(std::begin(kNames), std::end(kNames));
  candidates.insert(candidates.end(), std::begin(kVendorPaths), std::end(kVendorPaths));
  if (!given.empty()) candidates = {given.c_str()};
  std::vector<std::string> failures;
  for (const char* library : candidates) {
    const std::string why = WhyNotLoaded(library);
    if (why.empty()) return absl::OkStatus();
    // A phone has few of them; those that are not there say nothing new.
    const bool is_path = absl::StartsWith(library, "/");
    if (!is_path || !given.empty() || access(library, F_OK) == 0)
      failures.push_back(absl::StrCat(library, " (", why, ")"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no library of OpenCL can be loaded: ", absl::StrJoin(failures, ", "),
                   "; install one (Debian: ocl-icd-libopencl1 and a driver), name it with "
                   "--backend-option opencl.library=PATH, or take --backend cpu"));
}

bool MayHaveGpu(const BackendOptions& options) {
  const std::vector<std::filesystem::path> files = DriverFiles();
  if (!options.Get("opencl", "library").empty() || !VendorLibraries().empty()) return true;
  if (!options.Get("opencl", "device").empty()) return !files.empty();
  return std::any_of(files.begin(), files.end(), [](const std::filesystem::path& file) {
    return file.filename().string().find("pocl") == std::string::npos;
  });
}

std::string DriverStamp() {
  std::vector<std::filesystem::path> files = DriverFiles();
  std::sort(files.begin(), files.end());
  const std::vector<std::filesystem::path> vendors = VendorLibraries();
  files.insert(files.end(), vendors.begin(), vendors.end());
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
