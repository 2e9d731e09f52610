#pragma once

// Options of benches that send frames.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"

namespace runnel {

struct FrameOptions {
  int64_t frame_bytes;
  int frames;
  int rounds;
  std::string summary;
};

[[noreturn]] inline void Fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

// options: those that the command line does not name.
inline FrameOptions ParseFrames(int argc, char** argv, FrameOptions options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) Fail(flag + " needs a value");
    const char* value = argv[i + 1];
    if (flag == "--summary") {
      options.summary = value;
    } else if (!(flag == "--frame-bytes" && absl::SimpleAtoi(value, &options.frame_bytes)) &&
               !(flag == "--frames" && absl::SimpleAtoi(value, &options.frames)) &&
               !(flag == "--rounds" && absl::SimpleAtoi(value, &options.rounds))) {
      Fail("bad flag or value: " + flag);
    }
  }
  if (options.frame_bytes < 1 || options.frames < 1 || options.rounds < 1) Fail("too small");
  return options;
}

}  // namespace runnel
