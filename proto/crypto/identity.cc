#include "proto/crypto/identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr int64_t kMaxIdentityBytes = 16 << 10;
constexpr char kIdentityFile[] = "/identity.pem";
constexpr char kAuthorityFile[] = "/authority.pem";

// The blocks of a PEM text, each with its two lines.
std::vector<std::string> PemBlocks(absl::string_view text) {
  constexpr absl::string_view kEnd = "-----END ";
  std::vector<std::string> blocks;
  for (size_t begin = text.find("-----BEGIN "); begin != text.npos;
       begin = text.find("-----BEGIN ", begin)) {
    const size_t end = text.find(kEnd, begin);
    const size_t line = end == text.npos ? text.npos : text.find('\n', end);
    if (line == text.npos) break;
    blocks.emplace_back(text.substr(begin, line + 1 - begin));
    begin = line;
  }
  return blocks;
}

}  // namespace

WallClock SystemWallClock() {
  return [] {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
}

std::string Identity::ToString() const {
  return absl::StrCat(key_pem, certificate_pem, authority_pem);
}

absl::StatusOr<Identity> ParseIdentity(absl::string_view text) {
  std::vector<std::string> blocks = PemBlocks(text);
  if (blocks.size() != 3 || !absl::StrContains(blocks[0], "PRIVATE KEY"))
    return absl::InvalidArgumentError("is not a key and two certificates");
  Identity identity{std::move(blocks[0]), std::move(blocks[1]), std::move(blocks[2])};
  RUNNEL_RETURN_IF_ERROR(ReadCertificate(identity.certificate_pem).status());
  RUNNEL_RETURN_IF_ERROR(KeyHash(identity.authority_pem).status());
  return identity;
}

bool IsRenewalDue(const CertificateInfo& certificate, int64_t now_s) {
  const int64_t life_s = certificate.not_after_s - certificate.not_before_s;
  return now_s >= certificate.not_after_s - life_s / 3;
}

absl::Status MakePrivateFolder(const std::string& folder) {
  const std::filesystem::path parent = std::filesystem::path(folder).parent_path();
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return FileError("make", parent.string(), error.value());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return FileError("make", folder, errno);
  struct stat info = {};
  if (lstat(folder.c_str(), &info) != 0) return FileError("read", folder, errno);
  if (!S_ISDIR(info.st_mode)) return FileError("read", folder, ENOTDIR);
  if (info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(folder, ": belongs to another user"));
  }
  if ((info.st_mode & 0077) != 0 && chmod(folder.c_str(), 0700) != 0)
    return FileError("close", folder, errno);
  return absl::OkStatus();
}

absl::Status WritePrivateFile(const std::string& path, absl::string_view content) {
  // A name of its own: two processes may write the same file.
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return FileError("create", temporary, errno);
  absl::Status status = WriteAll(fd, content, temporary);
  if (status.ok() && (fchmod(fd, 0600) != 0 || fsync(fd) != 0))
    status = FileError("flush", temporary, errno);
  close(fd);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0)
    status = FileError("rename to", path, errno);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::Status WriteIdentity(const std::string& folder, const Identity& identity) {
  RUNNEL_RETURN_IF_ERROR(MakePrivateFolder(folder));
  RUNNEL_RETURN_IF_ERROR(WritePrivateFile(folder + kAuthorityFile, identity.authority_pem));
  return WritePrivateFile(folder + kIdentityFile, identity.ToString());
}

absl::StatusOr<Identity> ReadIdentity(const std::string& folder) {
  const std::string path = folder + kIdentityFile;
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxIdentityBytes));
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && (info.st_mode & 0077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": others may read this key: chmod 600 it"));
  }
  absl::StatusOr<Identity> identity = ParseIdentity(text);
  if (!identity.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", identity.status().message()));
  return identity;
}

Identity IdentityHolder::Get() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return identity_;
}

CertificateInfo IdentityHolder::info() const {
  return ReadCertificate(Get().certificate_pem).value_or(CertificateInfo());
}

absl::Status IdentityHolder::Replace(Identity identity) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    identity_ = identity;
  }
  return folder_.empty() ? absl::OkStatus() : WriteIdentity(folder_, identity);
}

}  // namespace runnel
