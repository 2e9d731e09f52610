#pragma once

// Programs as a device's compiler built them, kept from run to run: a file each, in one folder. A
// file that is damaged, or of another subject, is none.

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace runnel::opencl {

// In the user's folder for such files; empty: he has none.
std::string DefaultProgramFolder();

class ProgramFiles {
 public:
  // folder: made when the first program is kept; empty: none are kept.
  explicit ProgramFiles(std::string folder) : folder_(std::move(folder)) {}

  bool keeps() const { return !folder_.empty(); }
  // subject: device, driver, options and text, all that a program depends on. A damaged file is
  // said on stderr.
  std::optional<std::string> Load(absl::string_view subject) const;
  // Where it cannot be written, the next run builds again.
  void Keep(absl::string_view subject, absl::string_view program) const;

 private:
  std::string PathOf(absl::string_view subject) const;

  const std::string folder_;
};

}  // namespace runnel::opencl
