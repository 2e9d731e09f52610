#pragma once

// A file that is written piece by piece and is there whole or not at all.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

// One thread at a time.
class AtomicStream {
 public:
  // Begins with <path>.tmp, as WriteFileAtomically. Errors as it.
  static absl::StatusOr<AtomicStream> Open(const std::string& path);
  AtomicStream(AtomicStream&& other) noexcept;
  AtomicStream& operator=(AtomicStream&&) = delete;
  // Without Commit nothing is left, and what was at the path before is there as it was.
  ~AtomicStream();

  absl::Status Append(absl::string_view bytes);
  // Flushes the file to the disk and gives it its name. Nothing may be appended any more.
  absl::Status Commit();

 private:
  AtomicStream(std::string path, std::string temporary, int fd);

  std::string path_;
  std::string
      temporary_;  // empty: the path is no regular file (/dev/null, a pipe) and written as it is
  int fd_;
};

}  // namespace runnel
