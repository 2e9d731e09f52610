#include "proto/process/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

// Holder by the kernel's list of locks, "1: FLOCK  ADVISORY  WRITE 4186 fe:00:10955015 0 EOF".
// None: it is not listed, or the process is of another container.
std::optional<int> HolderOf(const struct stat& info) {
  const std::string file = absl::StrFormat("%02x:%02x:%d", major(info.st_dev), minor(info.st_dev),
                                           static_cast<int64_t>(info.st_ino));
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, mode, access, locked;
    int process = 0;
    words >> number >> kind >> mode >> access >> process >> locked;
    if (words && locked == file && process > 0) return process;
  }
  return std::nullopt;
}

}  // namespace

absl::Status LockOpenFile(int fd, absl::string_view path) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return FileError("read", path, errno);
  if (!S_ISREG(info.st_mode)) return absl::OkStatus();
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return FileError("lock", path, errno);
    const std::optional<int> holder = HolderOf(info);
    return absl::AlreadyExistsError(
        absl::StrCat(path, " is in use by ",
                     holder.has_value() ? absl::StrCat("process ", *holder) : "another process"));
  }
  return absl::OkStatus();
}

absl::StatusOr<FileLock> FileLock::Take(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return FileError("open", path, errno);
  FileLock lock(fd);
  if (absl::Status status = LockOpenFile(fd, path); !status.ok()) return status;
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace runnel
