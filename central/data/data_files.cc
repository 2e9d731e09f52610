#include "central/data/data_files.h"

#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace runnel::data {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<fs::path>> SearchFolders(
    absl::string_view dataset, absl::string_view data_dir,
    absl::Span<const absl::string_view> subfolders) {
  if (data_dir.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(dataset, ": needs --data-dir, the folder that holds its files"));
  }
  const fs::path root(std::string{data_dir});
  std::error_code error;
  if (!fs::is_directory(root, error)) {
    return absl::NotFoundError(
        absl::StrCat(dataset, ": --data-dir ", data_dir, " is not a folder that can be read"));
  }
  std::vector<fs::path> folders = {root};
  for (absl::string_view subfolder : subfolders) {
    const fs::path folder = root / std::string{subfolder};
    if (fs::is_directory(folder, error)) folders.push_back(folder);
  }
  return folders;
}

std::string JoinPaths(absl::Span<const fs::path> paths) {
  return absl::StrJoin(paths, ", ", [](std::string* out, const fs::path& path) {
    absl::StrAppend(out, path.string());
  });
}

void ByteReader::Close::operator()(void* file) const { gzclose(static_cast<gzFile>(file)); }

absl::StatusOr<ByteReader> ByteReader::Open(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return absl::NotFoundError(absl::StrCat(path.string(), ": is not a file that can be read"));
  }
  ByteReader reader;
  reader.path_ = path.string();
  reader.file_.reset(gzopen(reader.path_.c_str(), "rb"));
  if (reader.file_ == nullptr) {
    return absl::NotFoundError(absl::StrCat(reader.path_, ": cannot be opened"));
  }
  gzbuffer(static_cast<gzFile>(reader.file_.get()), 1 << 18);
  return reader;
}

absl::Status ByteReader::Damaged() const {
  int code = Z_OK;
  gzerror(static_cast<gzFile>(file_.get()), &code);
  if (code == Z_OK) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path_, ": gzip data is truncated or damaged after byte ",
                                          offset_, " of its contents; fetch the file again"));
}

absl::StatusOr<std::vector<uint8_t>> ByteReader::Read(uint64_t bytes) {
  constexpr uint64_t kChunk = uint64_t{1} << 20;
  std::vector<uint8_t> data;
  while (data.size() < bytes) {
    const uint64_t have = data.size();
    data.resize(have + std::min(kChunk, bytes - have));
    const int got = gzread(static_cast<gzFile>(file_.get()), data.data() + have,
                           static_cast<unsigned>(data.size() - have));
    data.resize(have + std::max(got, 0));
    offset_ += std::max(got, 0);
    if (got > 0) continue;
    if (absl::Status damaged = Damaged(); !damaged.ok()) return damaged;
    return absl::DataLossError(absl::StrCat(path_, ": ends after byte ", offset_, ", ",
                                            bytes - data.size(),
                                            " bytes too early; fetch the file again"));
  }
  return data;
}

absl::Status ByteReader::ExpectEnd() {
  uint8_t byte = 0;
  const int got = gzread(static_cast<gzFile>(file_.get()), &byte, 1);
  if (got == 0) return Damaged();
  if (got < 0) return absl::DataLossError(absl::StrCat(path_, ": gzip data is damaged"));
  return absl::DataLossError(absl::StrCat(path_, ": goes on after byte ", offset_,
                                          ", where its header says that it ends"));
}

absl::StatusOr<std::string> ReadText(const fs::path& path) {
  constexpr uintmax_t kLimit = uintmax_t{1} << 30;
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return absl::NotFoundError(absl::StrCat(path.string(), ": is missing"));
  if (size > kLimit) {
    return absl::InvalidArgumentError(
        absl::StrCat(path.string(), ": has ", size, " bytes, more than the limit of ", kLimit));
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    return absl::DataLossError(absl::StrCat(path.string(), ": cannot be read to its end"));
  }
  return text;
}

}  // namespace runnel::data
