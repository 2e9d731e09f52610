#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/data/data_files.h"
#include "central/data/loaders.h"
#include "central/data/memory_datasets.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kImagesMagic = 2051;
constexpr uint32_t kLabelsMagic = 2049;
constexpr int64_t kSide = 28;
constexpr int kClasses = 10;

absl::StatusOr<fs::path> Find(absl::Span<const fs::path> folders, const std::string& name) {
  for (const fs::path& folder : folders) {
    for (const char* ending : {"", ".gz"}) {
      std::error_code error;
      if (fs::path path = folder / (name + ending); fs::is_regular_file(path, error)) return path;
    }
  }
  return absl::NotFoundError(absl::StrCat("mnist: no ", name, " or ", name, ".gz in ",
                                          JoinPaths(folders),
                                          "; --data-dir must name the folder of the four files"));
}

uint32_t BigEndian(absl::Span<const uint8_t> bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// Reads magic and count; the reader then stands behind them.
absl::StatusOr<uint32_t> ReadCount(ByteReader& reader, const fs::path& path, uint32_t magic,
                                   const char* what) {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<uint8_t> header, reader.Read(8));
  const uint32_t found = BigEndian(header);
  if (found != magic) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": byte 0: magic number ", found,
                                                   ", IDX ", what, " begin with ", magic));
  }
  const uint32_t count = BigEndian(absl::MakeConstSpan(header).subspan(4));
  if (count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path.string(), ": byte 4: holds no ", what, "; fetch the file again"));
  }
  return count;
}

absl::StatusOr<std::vector<uint8_t>> ReadImages(const fs::path& path) {
  RUNNEL_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  RUNNEL_ASSIGN_OR_RETURN(const uint64_t count, ReadCount(reader, path, kImagesMagic, "images"));
  RUNNEL_ASSIGN_OR_RETURN(std::vector<uint8_t> sides, reader.Read(8));
  const uint32_t rows = BigEndian(sides);
  const uint32_t columns = BigEndian(absl::MakeConstSpan(sides).subspan(4));
  if (rows != kSide || columns != kSide) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": byte 8: images of ", rows, "x",
                                                   columns, ", MNIST's are 28x28"));
  }
  RUNNEL_ASSIGN_OR_RETURN(std::vector<uint8_t> pixels, reader.Read(count * kSide * kSide));
  RUNNEL_RETURN_IF_ERROR(reader.ExpectEnd());
  return pixels;
}

absl::StatusOr<std::vector<uint8_t>> ReadLabels(const fs::path& path) {
  RUNNEL_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  RUNNEL_ASSIGN_OR_RETURN(const uint32_t count, ReadCount(reader, path, kLabelsMagic, "labels"));
  RUNNEL_ASSIGN_OR_RETURN(std::vector<uint8_t> labels, reader.Read(count));
  RUNNEL_RETURN_IF_ERROR(reader.ExpectEnd());
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= kClasses) {
      return absl::InvalidArgumentError(absl::StrCat(path.string(), ": label ", i, " (byte ", i + 8,
                                                     ") is ", labels[i], ", not 0 to 9"));
    }
  }
  return labels;
}

absl::StatusOr<std::unique_ptr<Dataset>> LoadSplit(absl::Span<const fs::path> folders,
                                                   const std::string& prefix) {
  RUNNEL_ASSIGN_OR_RETURN(fs::path images_path, Find(folders, prefix + "-images-idx3-ubyte"));
  RUNNEL_ASSIGN_OR_RETURN(fs::path labels_path, Find(folders, prefix + "-labels-idx1-ubyte"));
  RUNNEL_ASSIGN_OR_RETURN(std::vector<uint8_t> labels, ReadLabels(labels_path));
  RUNNEL_ASSIGN_OR_RETURN(std::vector<uint8_t> pixels, ReadImages(images_path));
  if (pixels.size() != labels.size() * kSide * kSide) {
    return absl::InvalidArgumentError(absl::StrCat(
        images_path.string(), ": holds ", pixels.size() / (kSide * kSide), " images, ",
        labels_path.string(), " ", labels.size(), " labels; the two files do not belong together"));
  }
  return std::make_unique<ImageDataset>(Shape{1, kSide, kSide}, kClasses,
                                        std::vector<ChannelScale>{kMnistScale}, std::move(pixels),
                                        std::move(labels));
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadMnist(absl::string_view data_dir, uint64_t) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<fs::path> folders,
                          SearchFolders("mnist", data_dir, {"mnist"}));
  DatasetSplits splits;
  RUNNEL_ASSIGN_OR_RETURN(splits.train, LoadSplit(folders, "train"));
  RUNNEL_ASSIGN_OR_RETURN(splits.test, LoadSplit(folders, "t10k"));
  return splits;
}

}  // namespace runnel::data
