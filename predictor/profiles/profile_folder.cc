#include "predictor/profiles/profile_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr size_t kMaxFiles = 1000;

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& path, size_t max_bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  const std::streamoff size = file.tellg();
  if (size < 0 || static_cast<size_t>(size) > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": is no file of at most ", max_bytes, " bytes"));
  }
  std::string text(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(text.data(), size)) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  return text;
}

absl::Status WriteText(const std::string& path, absl::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) return absl::InternalError(absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DeviceProfile>> LoadProfiles(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".profile") paths.push_back(it->path().string());
    if (paths.size() > kMaxFiles) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, ": more than ", kMaxFiles, " profiles"));
    }
  }
  if (paths.empty()) {
    return absl::NotFoundError(
        absl::StrCat(folder,
                     ": has no *.profile; predictor/profiles of the sources does, and `runnel-lab "
                     "profile` measures one"));
  }
  std::sort(paths.begin(), paths.end());
  std::vector<DeviceProfile> profiles;
  std::set<std::string> names;
  for (const std::string& path : paths) {
    RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadText(path, kMaxProfileBytes));
    absl::StatusOr<DeviceProfile> profile = ParseProfile(text);
    if (!profile.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", profile.status().message()));
    }
    if (!names.insert(profile->name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": another profile has the name ", profile->name, " too"));
    }
    profiles.push_back(*std::move(profile));
  }
  return profiles;
}

}  // namespace runnel
