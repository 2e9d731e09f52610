#include "kernels/backends/host/loaded_backend.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace runnel {

std::string BackendLibrary(absl::string_view name) {
  std::error_code ignored;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path folder = binary.parent_path().parent_path() / "lib" / "runnel";
  return (folder / absl::StrCat("librunnel_backend_", name, ".so")).string();
}

bool IsBackendInstalled(absl::string_view name) {
  return access(BackendLibrary(name).c_str(), R_OK) == 0;
}

absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(absl::string_view name,
                                                     const BackendSettings& settings) {
  const std::string path = BackendLibrary(name);
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("backend ", name, ": ", path, " ", why));
  };
  if (!IsBackendInstalled(name)) return refuse("is not there: build it, or take --backend auto");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return refuse(absl::StrCat("cannot be loaded: ", dlerror()));
  const auto find =
      reinterpret_cast<const BackendRow* (*)(int)>(dlsym(library, "runnel_backend_row"));
  const BackendRow* row = find == nullptr ? nullptr : find(kBackendContract);
  if (row == nullptr) return refuse("is of another release: build it again");
  return row->make(settings);
}

}  // namespace runnel
