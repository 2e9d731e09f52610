#pragma once

// A file without a disk, for readers that take a path.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_target.h"

namespace runnel::fuzz {

class MemoryFile {
 public:
  explicit MemoryFile(absl::string_view content) : descriptor_(memfd_create("fuzz", 0)) {
    Require(descriptor_ >= 0, "memfd_create");
    const ssize_t written = write(descriptor_, content.data(), content.size());
    Require(written == static_cast<ssize_t>(content.size()), "write to memory");
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace runnel::fuzz
