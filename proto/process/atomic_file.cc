#include "proto/process/atomic_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

absl::StatusCode CodeOf(int error_number) {
  switch (error_number) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  // The error of close, where some file systems report that they could not write.
  int Close() {
    const int result = close(fd_);
    fd_ = -1;
    return result;
  }

 private:
  int fd_;
};

absl::Status WritePieces(int fd, absl::Span<const absl::string_view> pieces,
                         const std::string& path) {
  for (absl::string_view piece : pieces) {
    RUNNEL_RETURN_IF_ERROR(WriteAll(fd, piece, path));
  }
  return absl::OkStatus();
}

absl::Status WriteInPlace(const std::string& path, absl::Span<const absl::string_view> pieces) {
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) return FileError("open", path, errno);
  return WritePieces(file.get(), pieces, path);
}

absl::Status WriteAndFlush(const std::string& temporary,
                           absl::Span<const absl::string_view> pieces) {
  // Of a process that was killed, or a link that another user planted in a folder of everybody's.
  unlink(temporary.c_str());
  FileDescriptor file(
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (file.get() < 0) return FileError("create", temporary, errno);
  RUNNEL_RETURN_IF_ERROR(WritePieces(file.get(), pieces, temporary));
  if (fsync(file.get()) != 0) return FileError("flush", temporary, errno);
  if (file.Close() != 0) return FileError("close", temporary, errno);
  return absl::OkStatus();
}

// Where a symbolic link leads; the path itself if it is none or leads nowhere.
std::string Resolve(const std::string& path) {
  char* real = realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  std::string resolved = real;
  free(real);
  return resolved;
}

}  // namespace

absl::Status FileError(absl::string_view action, absl::string_view path, int error_number) {
  return absl::Status(CodeOf(error_number),
                      absl::StrCat(action, " ", path, ": ", strerror(error_number)));
}

absl::Status WriteAll(int fd, absl::string_view bytes, absl::string_view path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) {
  // A pipe that nobody writes to would be waited for.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return FileError("open", path, errno);
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) return FileError("read", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "read ", path, S_ISDIR(info.st_mode) ? ": is a folder, no file" : ": is no regular file"));
  }
  if (info.st_size > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("read ", path, ": has ", info.st_size,
                                                   " bytes, more than the ", max_bytes,
                                                   " that such a file can have"));
  }
  std::string content(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = read(file.get(), &content[done], content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("read", path, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  return content;
}

absl::Status FlushFolderOf(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string directory = parent.empty() ? "." : parent.string();
  FileDescriptor file(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() < 0) return FileError("open", directory, errno);
  // EINVAL: a file system that has nothing to flush.
  if (fsync(file.get()) != 0 && errno != EINVAL) return FileError("flush", directory, errno);
  return absl::OkStatus();
}

absl::Status CheckCanWrite(const std::string& path) {
  const std::string target = Resolve(path);
  struct stat info = {};
  if (stat(target.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) return WriteInPlace(target, {});
  const std::string temporary = target + ".tmp";
  const absl::Status status = WriteAndFlush(temporary, {});
  unlink(temporary.c_str());
  return status;
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> pieces) {
  const std::string target = Resolve(path);
  struct stat info = {};
  if (stat(target.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return WriteInPlace(target, pieces);
  }
  const std::string temporary = target + ".tmp";
  absl::Status status = WriteAndFlush(temporary, pieces);
  if (status.ok() && rename(temporary.c_str(), target.c_str()) != 0) {
    status = FileError("rename to", target, errno);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return FlushFolderOf(target);
}

}  // namespace runnel
