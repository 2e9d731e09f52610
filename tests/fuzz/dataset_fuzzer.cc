// Folders of data sets, and the user's own: tables, arrays, pictures, and what a check-point keeps of
// them. The files of an input stand behind one another (kNextFile); those of the test split are
// right.

#include <png.h>
#include <turbojpeg.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_split.h"
#include "central/data/loaders.h"
#include "central/data/own/picture.h"
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

std::string Array(const std::string& type, const std::string& shape, size_t bytes) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" + std::string(bytes, '\x01');
}
// Of two classes: a 0 in front.
std::string ArrayLabels() {
  std::string labels = Array("|u1", "4,", 4);
  labels[labels.size() - 4] = labels[labels.size() - 3] = 0;
  return labels;
}

std::string Png() {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = 9;
  image.height = 7;
  image.format = PNG_FORMAT_RGB;
  const std::string pixels(9 * 7 * 3, 'p');
  std::string file(1000, '\0');
  png_alloc_size_t bytes = file.size();
  Require(png_image_write_to_memory(&image, file.data(), &bytes, 0, pixels.data(), 0, nullptr) != 0,
          "a picture is written");
  file.resize(bytes);
  return file;
}

std::string Jpeg() {
  const std::string pixels(9 * 7 * 3, 'j');
  unsigned char* file = nullptr;
  unsigned long bytes = 0;
  const tjhandle writer = tjInitCompress();
  Require(tjCompress2(writer, reinterpret_cast<const unsigned char*>(pixels.data()), 9, 0, 7,
                      TJPF_RGB, &file, &bytes, TJSAMP_420, 90, 0) == 0,
          "a picture is written");
  const std::string text(reinterpret_cast<const char*>(file), bytes);
  tjFree(file);
  tjDestroy(writer);
  return text;
}

void RequireOneLine(const absl::Status& status) {
  Require(status.message().find('\n') == absl::string_view::npos, "errors are one line");
}

// A description that is taken comes back, and reads what is given to it or says why not.
void TryDescription(const Folder& folder, absl::string_view text, absl::string_view samples) {
  const absl::StatusOr<DataDescription> description = ParseDescription(text);
  if (!description.ok()) return RequireOneLine(description.status());
  const absl::StatusOr<DataDescription> again = ParseDescription(DescriptionText(*description));
  Require(again.ok() && *again == *description, "a description comes back");
  const auto kind = DescribedDataset(*description);
  if (!kind.ok()) return RequireOneLine(kind.status());
  folder.Write("samples", samples);
  const auto read = (*kind)->Unlabelled(folder.path() + "/samples");
  if (!read.ok()) return RequireOneLine(read.status());
  std::vector<float> sample(static_cast<size_t>((*read)->sample_shape().elements()));
  for (int64_t i = 0; i < (*read)->size(); ++i) {
    (*read)->CopySample(i, absl::MakeSpan(sample));
    Require(!(*read)->sample_name(i).empty(), "a sample has a name");
  }
}

void TryPicture(absl::string_view file) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(file.data());
  const auto picture = data::DecodePicture(absl::MakeConstSpan(bytes, file.size()), data::PictureSize{2, 2});
  if (!picture.ok()) return RequireOneLine(picture.status());
  Require(data::Fitted(*picture, 4, 5).size() == 60, "a picture is fitted");
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
  const std::string table =
      "length,colour,kind\n1.5,red,a\n2,blue,a\n?,red,b\n\"4\",\"b \"\"c\",b\n";
  const std::string described =
      "runnel-data 1\nkind csv\nsample 3\nclass a\nclass b\nscale 1.5 0.5\nscale 0 1\nscale 0 1\n"
      "column length\ncolumn colour\ncategory red\ncategory b \\\"c\n";
  return {"m" + Images() + next + Labels(),
          "c" + std::string(3073, '\x03'),
          "u5\n" + next + Window(),
          "t" + table,
          "a" + Array("<f4", "4, 2", 32) + next + ArrayLabels(),
          "a" + Array("|u1", "4, 2, 3", 24) + next + ArrayLabels(),
          "p" + Png(),
          "p" + Jpeg(),
          "d" + described + next + table,
          "drunnel-data 1\nkind npy\nsample 2\nclass a\nclass b\nscale 1 1\nscale 0 1\n" + next +
              Array("<f4", "4, 2", 32),
          "drunnel-data 1\nkind csv\nsample 1\nvocabulary x\ncolumn length\ncolumn colour\n" +
              next + table,
          "drunnel-data 1\nkind images\nsample 1x3x3\nclass a\nscale 0.1 0.3\n" + next + Png()};
}

void Try(absl::string_view input) {
  if (input.empty()) return;
  const char kind = input[0];
  const std::vector<absl::string_view> files = absl::StrSplit(input.substr(1), kNextFile);
  const absl::string_view second = files.size() > 1 ? files[1] : "";
  if (kind == 'p') return TryPicture(input.substr(1));
  const Folder folder;
  if (kind == 'd') return TryDescription(folder, files[0], second);
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
  } else if (kind == 't') {
    folder.Write("t.csv", files[0]);
    splits = data::LoadCsv({.place = folder.path() + "/t.csv"});
  } else if (kind == 'a') {
    folder.Write("x.npy", files[0]);
    folder.Write("y.npy", second);
    splits = data::LoadNpy(folder.path() + "/x.npy," + folder.path() + "/y.npy", 1);
  }
  if (!splits.ok()) return RequireOneLine(splits.status());
  Require(splits->train->size() > 0, "a data set has samples");
  for (int64_t i = 0; i < splits->train->size(); ++i) {
    const int32_t label = splits->train->label(i);
    Require(label >= 0 && label < splits->train->classes(), "labels are classes");
  }
  std::vector<float> sample(static_cast<size_t>(splits->train->sample_shape().elements()));
  splits->train->CopySample(0, absl::MakeSpan(sample));
  const DataDescription description = splits->train->Describe();
  const absl::StatusOr<DataDescription> again = ParseDescription(DescriptionText(description));
  Require(again.ok() && *again == description, "a description comes back");
}

}  // namespace runnel::fuzz
