#pragma once

// Files from outside: found by name, and read with every size checked against the file, so that no
// header makes us allocate. Errors are one line that names the file.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace runnel::data {

// data_dir and its subfolders of these names, those that exist. InvalidArgument if data_dir is
// empty, NotFound if it is no folder; both say what to give.
absl::StatusOr<std::vector<std::filesystem::path>> SearchFolders(
    absl::string_view dataset, absl::string_view data_dir,
    absl::Span<const absl::string_view> subfolders);

// "/a, /a/mnist": for messages.
std::string JoinPaths(absl::Span<const std::filesystem::path> paths);

// Reads a file from its beginning; gzip is unpacked on the way, anything else taken as it is.
class ByteReader {
 public:
  // NotFound if it cannot be opened.
  static absl::StatusOr<ByteReader> Open(const std::filesystem::path& path);

  // The next `bytes` bytes. Memory grows with the bytes that arrive, never with the request.
  // DataLoss if the file ends before or its gzip stream is damaged.
  absl::StatusOr<std::vector<uint8_t>> Read(uint64_t bytes);
  // DataLoss if there are bytes left.
  absl::Status ExpectEnd();

 private:
  struct Close {
    void operator()(void* file) const;
  };
  absl::Status Damaged() const;

  std::string path_;
  std::unique_ptr<void, Close> file_;  // gzFile, which is a pointer to a struct of zlib's
  uint64_t offset_ = 0;
};

// A whole text file. NotFound if it is not there, InvalidArgument over 1 GiB, DataLoss if reading
// fails.
absl::StatusOr<std::string> ReadText(const std::filesystem::path& path);

}  // namespace runnel::data
