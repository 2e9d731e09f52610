#pragma once

// Texts from outside in messages, which are one line. Pure functions, any thread.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace runnel {

// Line ends and other control characters as in C.
inline std::string Printable(absl::string_view text) {
  std::string printable;
  for (const char c : text) {
    const bool is_control = static_cast<unsigned char>(c) < ' ' || c == '\x7f';
    absl::StrAppend(&printable, is_control ? absl::CEscape({&c, 1}) : std::string(1, c));
  }
  return printable;
}

// The status with a message of one line.
inline absl::Status OneLine(const absl::Status& status) {
  return absl::Status(status.code(), Printable(status.message()));
}

}  // namespace runnel
