#include "proto/process/atomic_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {

AtomicStream::AtomicStream(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

AtomicStream::AtomicStream(AtomicStream&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, "")),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicStream::~AtomicStream() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::StatusOr<AtomicStream> AtomicStream::Open(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  std::string target = error ? path : real.string();
  struct stat info = {};
  if (stat(target.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    const int fd = open(target.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return FileError("open", target, errno);
    return AtomicStream(std::move(target), "", fd);
  }
  std::string temporary = target + ".tmp";
  unlink(temporary.c_str());
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return FileError("create", temporary, errno);
  return AtomicStream(std::move(target), std::move(temporary), fd);
}

absl::Status AtomicStream::Append(absl::string_view bytes) { return WriteAll(fd_, bytes, path_); }

absl::Status AtomicStream::Commit() {
  if (temporary_.empty()) return absl::OkStatus();
  if (fsync(fd_) != 0) return FileError("flush", temporary_, errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return FileError("rename to", path_, errno);
  temporary_.clear();
  return FlushFolderOf(path_);
}

}  // namespace runnel
