// Folders of data sets. The files of an input stand behind one another (kNextFile); those of the
// test split are right.

#include <filesystem>
#include <fstream>

#include "absl/strings/str_split.h"
#include "central/data/loaders.h"
#include "tests/fuzz/fuzz_target.h"

namespace runnel::fuzz {
namespace {

constexpr const char* kSignals[9] = {"body_acc_x",  "body_acc_y",  "body_acc_z",
                                     "body_gyro_x", "body_gyro_y", "body_gyro_z",
                                     "total_acc_x", "total_acc_y", "total_acc_z"};

// In memory where the system has such a folder, and gone at the end.
class Folder {
 public:
  Folder() {
    std::error_code error;
    const bool in_memory = std::filesystem::is_directory("/dev/shm", error);
    path_ = std::string(in_memory ? "/dev/shm" : "/tmp") + "/runnel-fuzz-XXXXXX";
    Require(mkdtemp(path_.data()) != nullptr, "a folder can be made");
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void Write(const std::string& name, absl::string_view content) const {
    const std::filesystem::path path = path_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string BigEndian(uint32_t x) {
  return {static_cast<char>(x >> 24), static_cast<char>(x >> 16), static_cast<char>(x >> 8),
          static_cast<char>(x)};
}
std::string Images() {
  return BigEndian(2051) + BigEndian(1) + BigEndian(28) + BigEndian(28) + std::string(784, 'x');
}
std::string Labels() { return BigEndian(2049) + BigEndian(1) + "\x05"; }
std::string Window() {
  std::string line;
  for (int i = 0; i < 128; ++i) line += i % 2 == 0 ? " 1.0e-1" : " -2.5e-2";
  return line + "\n";
}

void WriteHar(const Folder& folder, const std::string& split, absl::string_view labels,
              absl::string_view first_signal) {
  folder.Write(split + "/y_" + split + ".txt", labels);
  for (int i = 0; i < 9; ++i) {
    folder.Write(split + "/Inertial Signals/" + kSignals[i] + "_" + split + ".txt",
                 i == 0 ? first_signal : Window());
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string next(kNextFile);
  return {"m" + Images() + next + Labels(), "c" + std::string(3073, '\x03'),
          "u5\n" + next + Window()};
}

void Try(absl::string_view input) {
  if (input.empty()) return;
  const char kind = input[0];
  const std::vector<absl::string_view> files = absl::StrSplit(input.substr(1), kNextFile);
  const absl::string_view second = files.size() > 1 ? files[1] : "";
  const Folder folder;
  absl::StatusOr<DatasetSplits> splits = absl::UnknownError("");
  if (kind == 'm') {
    folder.Write("train-images-idx3-ubyte", files[0]);
    folder.Write("train-labels-idx1-ubyte", second);
    folder.Write("t10k-images-idx3-ubyte", Images());
    folder.Write("t10k-labels-idx1-ubyte", Labels());
    splits = data::LoadMnist(folder.path(), 1);
  } else if (kind == 'c') {
    folder.Write("data_batch_1.bin", files[0]);
    folder.Write("test_batch.bin", std::string(3073, '\x01'));
    splits = data::LoadCifar10(folder.path(), 1);
  } else if (kind == 'u') {
    WriteHar(folder, "train", files[0], second);
    WriteHar(folder, "test", "1\n", Window());
    splits = data::LoadUciHar(folder.path(), 1);
  }
  if (!splits.ok()) return;
  Require(splits->train->size() > 0, "a data set has samples");
  for (int64_t i = 0; i < splits->train->size(); ++i) {
    const int32_t label = splits->train->label(i);
    Require(label >= 0 && label < splits->train->classes(), "labels are classes");
  }
}

}  // namespace runnel::fuzz
