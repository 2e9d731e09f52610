#pragma once

// Locks on files that keep a second process out. A lock ends with the process that has it, however
// that ends; a process that is stopped still has it.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

// Locks an open file for as long as it is open here. AlreadyExists: "PATH is in use by process N".
// What is no regular file is nobody's: OK. FileError (atomic_file.h) where the file system has no
// locks.
absl::Status LockOpenFile(int fd, absl::string_view path);

// A file that is there only to be locked. It is made if it is missing, and stays. One thread.
class FileLock {
 public:
  // Errors as LockOpenFile, and FileError.
  static absl::StatusOr<FileLock> Take(const std::string& path);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  int fd() const { return fd_; }

 private:
  explicit FileLock(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace runnel
