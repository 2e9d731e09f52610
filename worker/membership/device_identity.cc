#include "worker/membership/device_identity.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/sha256.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr size_t kIdBytes = 8;
constexpr size_t kIdDigits = 2 * kIdBytes;
constexpr size_t kNameDigits = 6;  // digits of the id, behind the host's name
constexpr int kMostWorkers = 256;  // unnamed workers of one user on one host

bool IsId(const std::string& text) {
  return text.size() == kIdDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isxdigit(c); });
}

struct KeptId {
  std::string id;
  FileLock lock;
};

// The file's id, or a new one written to an empty file. AlreadyExists: another worker has it.
absl::StatusOr<KeptId> KeepId(const std::string& path) {
  RUNNEL_ASSIGN_OR_RETURN(FileLock lock, FileLock::Take(path));
  RUNNEL_ASSIGN_OR_RETURN(std::string id, ReadWholeFile(path, 2 * kIdDigits));
  absl::StripAsciiWhitespace(&id);
  if (!IsId(id)) {
    id = absl::BytesToHexString(RandomBytes(kIdBytes));
    if (ftruncate(lock.fd(), 0) != 0) return FileError("write", path, errno);
    RUNNEL_RETURN_IF_ERROR(WriteAll(lock.fd(), absl::StrCat(id, "\n"), path));
  }
  return KeptId{std::move(id), std::move(lock)};
}

absl::StatusOr<KeptId> FindId(const std::string& folder, const std::string& given) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return FileError("make", folder, error.value());
  if (!given.empty()) return KeepId(absl::StrCat(folder, "/name-", given, ".id"));
  absl::StatusOr<KeptId> kept;
  for (int worker = 1; worker <= kMostWorkers; ++worker) {
    kept = KeepId(absl::StrCat(folder, "/host-", worker, ".id"));
    if (!absl::IsAlreadyExists(kept.status())) break;
  }
  return kept;
}

}  // namespace

DeviceIdentity FindDeviceIdentity(const std::string& state_folder, const std::string& given,
                                  const std::string& host) {
  DeviceIdentity identity;
  identity.name = given.empty() ? absl::StrCat(host, "-", getpid()) : given;
  if (state_folder.empty()) return identity;
  absl::StatusOr<KeptId> kept = FindId(state_folder + "/workers", given);
  // Another worker of that name runs here: central must not take this one for it.
  if (absl::IsAlreadyExists(kept.status()))
    identity.id = absl::BytesToHexString(RandomBytes(kIdBytes));
  if (!kept.ok()) return identity;
  if (given.empty()) identity.name = absl::StrCat(host, "-", kept->id.substr(0, kNameDigits));
  identity.id = std::move(kept->id);
  identity.lock = std::move(kept->lock);
  return identity;
}

}  // namespace runnel
