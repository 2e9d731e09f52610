#include "central/cli/shipped_profiles.h"

#include <filesystem>
#include <system_error>

namespace runnel {

std::string ShippedProfiles() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path folder = program.parent_path().parent_path() / "share/runnel/profiles";
  return !error && fs::is_directory(folder, error) ? folder.string() : "";
}

}  // namespace runnel
