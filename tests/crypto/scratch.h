#pragma once

// A folder of a test's own, and a clock that goes as the test says.

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "proto/crypto/identity.h"

namespace runnel {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string path = std::filesystem::temp_directory_path() / "runnel-crypto-XXXXXX";
    path_ = mkdtemp(path.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline constexpr int64_t kHour = 3600, kDay = 24 * kHour;
inline constexpr int64_t kStart = 1'800'000'000;

struct FakeTime {
  int64_t now_s = kStart;
  WallClock clock() {
    return [this] { return now_s; };
  }
};

}  // namespace runnel
