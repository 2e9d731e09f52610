#pragma once

// What benches share that are programs of one file: their clock, their flags, their result.

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "nlohmann/json.hpp"

namespace runnel {

// Of this process, all threads.
inline double CpuMs() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Flags and their values, all of them strings.
using Flags = std::map<std::string, std::string>;

// 1 where the value is no number.
inline int64_t Number(const Flags& flags, const char* name) {
  int64_t value = 0;
  return absl::SimpleAtoi(flags.at(name), &value) ? value : 1;
}

// Takes words `first`, ... of the command line as flags and values; false if `flags` has not all
// of these flags, or one has no value.
inline bool ReadFlags(int argc, char** argv, Flags& flags, int first = 1) {
  for (int i = first; i < argc; i += 2) {
    if (flags.count(argv[i]) == 0 || i + 1 >= argc) {
      std::cerr << "no flag, or no value: " << argv[i] << "\n";
      return false;
    }
    flags[argv[i]] = argv[i + 1];
  }
  return true;
}

// Prints the result, and writes it where --summary says; the program's exit code.
inline int Report(const absl::StatusOr<nlohmann::json>& result, const Flags& flags) {
  if (!result.ok()) {
    std::cerr << result.status() << "\n";
    return 2;
  }
  std::cout << result->dump(1) << "\n";
  const std::string& path = flags.at("--summary");
  if (!path.empty()) std::ofstream(path) << result->dump(1) << "\n";
  return 0;
}

}  // namespace runnel
