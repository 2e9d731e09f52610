#pragma once

// One decoder that is given bytes from outside. Each file NAME_fuzzer.cc defines both functions.
// With Clang they become a libFuzzer program (deploy/fuzz.sh), otherwise a test that runs the seeds
// and a bounded number of changed ones (bounded_run.cc).

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace runnel::fuzz {

// Valid inputs to begin with, small ones.
std::vector<std::string> Seeds();

// Ends the process if the decoder breaks a promise; a sanitizer ends it for everything else.
void Try(absl::string_view input);

inline void Require(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "broken: %s\n", promise);
  std::abort();
}

// Between the files of an input that is a folder.
inline constexpr absl::string_view kNextFile = "\n--8<--\n";

}  // namespace runnel::fuzz
