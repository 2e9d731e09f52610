#include "proto/transport/grpc/security/join_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/identity.h"
#include "proto/crypto/sha256.h"

namespace runnel {
namespace {

constexpr size_t kSecretBytes = 16;

std::string PathOf(const std::string& folder, int port) {
  return absl::StrCat(folder, "/join-", port);
}

}  // namespace

std::string DefaultSecretsFolder() {
  if (const char* given = std::getenv("RUNNEL_RUNTIME_DIR"); given != nullptr && *given != '\0')
    return given;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime != '\0')
    return absl::StrCat(runtime, "/runnel");
  return absl::StrCat("/tmp/runnel-", geteuid());
}

absl::StatusOr<std::string> MakeJoinSecret(const std::string& folder, int port) {
  RUNNEL_RETURN_IF_ERROR(MakePrivateFolder(folder));
  std::string secret = absl::BytesToHexString(RandomBytes(kSecretBytes));
  RUNNEL_RETURN_IF_ERROR(WritePrivateFile(PathOf(folder, port), secret));
  return secret;
}

void RemoveJoinSecret(const std::string& folder, int port) { unlink(PathOf(folder, port).c_str()); }

absl::StatusOr<std::string> ReadJoinSecret(const std::string& folder, int port) {
  const std::string path = PathOf(folder, port);
  const absl::Status none = absl::NotFoundError(absl::StrCat(path, ": no secret that we may read"));
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return none;
  struct stat info = {};
  char bytes[2 * kSecretBytes];
  // A file that another user placed here must not be sent as our secret.
  const bool is_ours = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
  const ssize_t got = is_ours ? read(fd, bytes, sizeof(bytes)) : -1;
  close(fd);
  if (got != static_cast<ssize_t>(sizeof(bytes))) return none;
  return std::string(bytes, sizeof(bytes));
}

}  // namespace runnel
