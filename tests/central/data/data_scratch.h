#pragma once

// Small data files in a folder of the test's own, which goes away with it.

#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace runnel {

class DataFolder {
 public:
  DataFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "runnel-data-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~DataFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  std::string path() const { return path_.string(); }

  // Folders on the way are made.
  void Write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  void WriteGzip(const std::string& name, const std::string& bytes) const {
    gzFile file = gzopen((path_ / name).c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Remove(const std::string& name) const { std::filesystem::remove_all(path_ / name); }

 private:
  std::filesystem::path path_;
};

// The folder of the real data sets: $RUNNEL_DATA_DIR or ../shared/data beside the repository.
inline std::string RealDataDir(const std::string& repository) {
  const char* named = std::getenv("RUNNEL_DATA_DIR");
  return named != nullptr ? named : repository + "/../shared/data";
}

}  // namespace runnel
