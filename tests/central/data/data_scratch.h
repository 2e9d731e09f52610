#pragma once

// Small data files in a folder of the test's own, which goes away with it.

#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/support/scratch.h"

namespace runnel {

class DataFolder {
 public:
  std::string path() const { return folder_.path(); }

  // Folders on the way are made.
  void Write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    Spill(folder_ / name, bytes);
  }
  void WriteGzip(const std::string& name, const std::string& bytes) const {
    gzFile file = gzopen((folder_ / name).c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
  }
  std::string Read(const std::string& name) const { return Slurp(folder_ / name); }
  void Remove(const std::string& name) const { std::filesystem::remove_all(folder_ / name); }

 private:
  ScratchDir folder_;
};

// The folder of the real data sets: $RUNNEL_DATA_DIR or ../shared/data beside the repository.
inline std::string RealDataDir(const std::string& repository) {
  const char* named = std::getenv("RUNNEL_DATA_DIR");
  return named != nullptr ? named : repository + "/../shared/data";
}

// Runs in `folder` the command that a loader's refusal gives for packed files.
inline void UnpackAsTold(const absl::Status& refusal, const std::string& folder) {
  const std::string message(refusal.message());
  const size_t begin = message.find("mkdir"), end = message.find(", then use");
  ASSERT_NE(begin, std::string::npos) << message;
  const std::string command = message.substr(begin, end - begin);
  ASSERT_EQ(std::system(("cd '" + folder + "' && " + command).c_str()), 0) << command;
}

}  // namespace runnel
