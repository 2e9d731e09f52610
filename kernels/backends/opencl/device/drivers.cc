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
#ifdef RUNNEL_STATIC_OPENCL
#include "kernels/backends/opencl/hosted/use_host.h"
#endif

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
constexpr char kHostProgram[] = "runnel-vendor-host";

[[maybe_unused]] std::filesystem::path FolderOfBinary() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

// The vendor host that loads the library; empty: this process does.
std::string HostOf(const BackendOptions& options) {
  const std::string given(options.Get("opencl", "host"));
  if (!given.empty()) return given;
#ifdef RUNNEL_STATIC_OPENCL
  return (FolderOfBinary() / kHostProgram).string();
#else
  return "";
#endif
}

#ifdef RUNNEL_STATIC_OPENCL
std::string WhyNotLoaded(const char*) { return "this worker is one static file"; }
std::string WhyNotHosted(const std::string& host, const std::vector<std::string>& candidates) {
  return std::string(UseHost(host, candidates).message());
}
#elif !defined(RUNNEL_LOADS_OPENCL)
std::string WhyNotLoaded(const char*) { return "this build loads no libraries"; }
std::string WhyNotHosted(const std::string&, const std::vector<std::string>&) {
  return "this build loads no libraries";
}
#else
// Empty: the host has a library, and its functions are what the next shared object finds.
std::string WhyNotHosted(const std::string& host, const std::vector<std::string>& candidates) {
  const std::string path =
      (FolderOfBinary().parent_path() / "lib" / "runnel" / "librunnel_opencl_hosted.so").string();
  void* loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  void* function = loaded == nullptr ? nullptr : dlsym(loaded, "runnel_use_opencl_host");
  if (function == nullptr) {
    const char* why = dlerror();
    return why == nullptr ? absl::StrCat(path, " cannot be loaded") : why;
  }
  std::vector<const char*> names;
  for (const std::string& candidate : candidates) names.push_back(candidate.c_str());
  names.push_back(nullptr);
  const auto use = reinterpret_cast<const char* (*)(const char*, const char* const*)>(function);
  const char* why = use(host.c_str(), names.data());
  return why == nullptr ? "" : why;
}

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

// What is tried, best first. A phone has few of the vendors' paths; those that are not there say
// nothing new.
std::vector<std::string> Candidates(const std::string& given) {
  if (!given.empty()) return {given};
  std::vector<std::string> candidates(std::begin(kNames), std::end(kNames));
  for (const char* path : kVendorPaths) {
    if (access(path, F_OK) == 0) candidates.emplace_back(path);
  }
  return candidates;
}

// Whether the vendor host that loads the library is there, or none has to.
bool CanStartHost(const BackendOptions& options) {
  const std::string host = HostOf(options);
  return host.empty() || access(host.c_str(), X_OK) == 0;
}

}  // namespace

bool HasDriver(const BackendOptions& options) {
  if (!options.Get("opencl", "library").empty() || !options.Get("opencl", "host").empty())
    return true;
  return CanStartHost(options) && (!DriverFiles().empty() || !VendorLibraries().empty());
}

absl::Status LoadOpenClLibrary(const BackendOptions& options) {
  const std::string given(options.Get("opencl", "library"));
  const std::vector<std::string> candidates = Candidates(given);
  std::vector<std::string> failures;
  if (const std::string host = HostOf(options); !host.empty()) {
    const std::string why = WhyNotHosted(host, candidates);
    if (why.empty()) return absl::OkStatus();
    failures.push_back(why);
  } else {
    for (const std::string& library : candidates) {
      const std::string why = WhyNotLoaded(library.c_str());
      if (why.empty()) return absl::OkStatus();
      failures.push_back(absl::StrCat(library, " (", why, ")"));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no library of OpenCL can be loaded: ", absl::StrJoin(failures, ", "),
                   "; install one (Debian: ocl-icd-libopencl1 and a driver), name it with "
                   "--backend-option opencl.library=PATH, or take --backend cpu"));
}

bool MayHaveGpu(const BackendOptions& options) {
  if (!CanStartHost(options)) return false;
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
  if (const std::string host = HostOf({}); !host.empty()) files.emplace_back(host);
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
