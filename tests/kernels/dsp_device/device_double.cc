#include "tests/kernels/dsp_device/device_double.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "kernels/backends/hexagon/emulated_session.h"
#include "proto/base/status_macros.h"

namespace runnel::hexagon {

std::string DoublePath(const std::string& variant) {
  const std::filesystem::path objects = DspObjectFolder();
  return (objects.parent_path() / absl::StrCat("libcdsprpc_double", variant, ".so")).string();
}

absl::Status HasDouble() {
  RUNNEL_RETURN_IF_ERROR(FindEmulator().status());
  if (access(DoublePath().c_str(), R_OK) == 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(DoublePath(), " is not there"));
}

DeviceSessionOptions DoubleOptions(const std::string& variant) {
  DeviceSessionOptions options;
  options.link.library = DoublePath(variant);
  options.link.objects = DspObjectFolder();
  options.link.shared_bytes = 64 << 20;
  options.link.private_bytes = 64 << 20;
  return options;
}

DoubleStatistics StatisticsOfDouble(const std::string& variant) {
  DoubleStatistics statistics;
  void* library = dlopen(DoublePath(variant).c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto read = reinterpret_cast<void (*)(DoubleStatistics*)>(
      library == nullptr ? nullptr : dlsym(library, "runnel_double_statistics"));
  if (read != nullptr) read(&statistics);
  return statistics;
}

}  // namespace runnel::hexagon
