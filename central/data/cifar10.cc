#include <algorithm>
#include <charconv>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "central/data/data_files.h"
#include "central/data/loaders.h"
#include "central/data/memory_datasets.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPixels = 3 * 32 * 32;
constexpr int64_t kRecord = 1 + kPixels;
constexpr int kClasses = 10;
constexpr char kTestFile[] = "test_batch.bin";

// Files of the data set in one folder.
struct Contents {
  std::map<int64_t, fs::path> train;  // by the N of data_batch_N.bin
  bool test = false;
  std::map<int64_t, fs::path> packed;  // by the N of data_batch_N.bin.xz
};

// N of data_batch_N and this ending, or -1.
int64_t BatchNumber(absl::string_view name, absl::string_view ending) {
  if (!absl::ConsumePrefix(&name, "data_batch_") || !absl::ConsumeSuffix(&name, ending)) return -1;
  int64_t number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : -1;
}

Contents List(const fs::path& folder) {
  Contents contents;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const int64_t number = BatchNumber(name, ".bin");
    const int64_t packed = BatchNumber(name, ".bin.xz");
    if (number >= 0) contents.train[number] = it->path();
    if (packed >= 0) contents.packed[packed] = it->path();
    if (name == kTestFile) contents.test = true;
  }
  return contents;
}

absl::Status AppendFile(const fs::path& path, std::vector<uint8_t>& pixels,
                        std::vector<uint8_t>& labels) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return absl::NotFoundError(absl::StrCat(path.string(), ": cannot be read"));
  if (size == 0 || size % kRecord != 0) {
    return absl::DataLossError(absl::StrCat(path.string(), ": has ", size,
                                            " bytes, not a whole number of records of ", kRecord,
                                            " bytes; fetch or unpack the file again"));
  }
  RUNNEL_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  for (uintmax_t record = 0; record < size / kRecord; ++record) {
    RUNNEL_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, reader.Read(kRecord));
    if (bytes[0] >= kClasses) {
      return absl::InvalidArgumentError(absl::StrCat(path.string(), ": record ", record, " (byte ",
                                                     record * kRecord, "): label ", bytes[0],
                                                     ", not 0 to 9; is this CIFAR-10's binary "
                                                     "version?"));
    }
    labels.push_back(bytes[0]);
    pixels.insert(pixels.end(), bytes.begin() + 1, bytes.end());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Dataset>> LoadFiles(absl::Span<const fs::path> paths) {
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  for (const fs::path& path : paths) RUNNEL_RETURN_IF_ERROR(AppendFile(path, pixels, labels));
  const std::vector<ChannelScale> scales = {{.4914, .247}, {.4822, .243}, {.4465, .261}};
  return std::make_unique<ImageDataset>(Shape{3, 32, 32}, kClasses, scales, std::move(pixels),
                                        std::move(labels));
}

// Without this check a run could train on a part of the images without a word.
absl::Status CheckAllUnpacked(const Contents& contents) {
  for (const auto& [number, path] : contents.packed) {
    if (contents.train.count(number) != 0) continue;
    return absl::NotFoundError(absl::StrCat("cifar10: ", path.string(),
                                            " is still packed, beside files that are not; unpack "
                                            "it with: xz -dk '",
                                            path.string(), "'"));
  }
  return absl::OkStatus();
}

absl::Status NothingThere(absl::Span<const fs::path> folders) {
  for (const fs::path& folder : folders) {
    if (List(folder).packed.empty()) continue;
    return absl::NotFoundError(absl::StrCat(
        "cifar10: the files in ", folder.string(),
        " are still packed; unpack them with: mkdir -p cifar10 && for f in '", folder.string(),
        "'/*.bin.xz; do xz -dc \"$f\" > cifar10/$(basename \"$f\" .xz); done, then use --data-dir "
        "cifar10"));
  }
  return absl::NotFoundError(absl::StrCat("cifar10: no data_batch_N.bin in ", JoinPaths(folders),
                                          "; --data-dir must name the folder of the unpacked "
                                          "binary version"));
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadCifar10(absl::string_view data_dir, uint64_t) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<fs::path> folders,
                          SearchFolders("cifar10", data_dir, {"cifar10", "cifar-10-batches-bin"}));
  for (const fs::path& folder : folders) {
    const Contents contents = List(folder);
    if (contents.train.empty()) continue;
    if (!contents.test) {
      return absl::NotFoundError(absl::StrCat("cifar10: no ", kTestFile, " in ", folder.string(),
                                              ", where data_batch_N.bin are; put it beside them"));
    }
    RUNNEL_RETURN_IF_ERROR(CheckAllUnpacked(contents));
    std::vector<fs::path> train;
    for (const auto& [number, path] : contents.train) train.push_back(path);
    DatasetSplits splits;
    RUNNEL_ASSIGN_OR_RETURN(splits.train, LoadFiles(train));
    RUNNEL_ASSIGN_OR_RETURN(splits.test, LoadFiles({folder / kTestFile}));
    return splits;
  }
  return NothingThere(folders);
}

}  // namespace runnel::data
