#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/data/data_files.h"
#include "central/data/loaders.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBytes = 256;     // what a token can be
constexpr int64_t kPositions = 64;  // of a sample

// Windows of a text one behind the other; the labels of a window are the bytes behind its own.
class TextDataset final : public Dataset {
 public:
  explicit TextDataset(std::string text) : text_(std::move(text)) {}

  int64_t size() const override { return (static_cast<int64_t>(text_.size()) - 1) / kPositions; }
  const Shape& sample_shape() const override { return shape_; }
  int64_t classes() const override { return kBytes; }
  int64_t tokens() const override { return kBytes; }
  int64_t labels_per_sample() const override { return kPositions; }
  void CopySample(int64_t index, absl::Span<float> out) const override {
    for (int64_t i = 0; i < kPositions; ++i)
      out[static_cast<size_t>(i)] = static_cast<float>(Byte(index * kPositions + i));
  }
  int32_t label(int64_t index) const override { return Byte(index + 1); }

 private:
  int32_t Byte(int64_t at) const { return static_cast<uint8_t>(text_[static_cast<size_t>(at)]); }

  const Shape shape_ = {kPositions};
  const std::string text_;
};

absl::StatusOr<fs::path> Find(absl::Span<const fs::path> folders, const std::string& split) {
  const std::string names[] = {absl::StrCat(split, ".txt"), absl::StrCat("wiki.", split, ".tokens"),
                               absl::StrCat("wiki.", split, ".raw")};
  std::error_code error;
  for (const fs::path& folder : folders) {
    for (const std::string& name : names) {
      if (fs::path path = folder / name; fs::is_regular_file(path, error)) return path;
    }
    const fs::path packed = folder / (names[0] + ".xz");
    if (!fs::is_regular_file(packed, error)) continue;
    return absl::NotFoundError(absl::StrCat(
        "wikitext2: ", packed.string(),
        " is packed; unpack it with `xz -dk` and give --data-dir the folder of the texts"));
  }
  return absl::NotFoundError(absl::StrCat("wikitext2: none of ", absl::StrJoin(names, ", "), " in ",
                                          JoinPaths(folders),
                                          "; --data-dir must name the folder of the texts"));
}

absl::StatusOr<std::unique_ptr<Dataset>> LoadSplit(absl::Span<const fs::path> folders,
                                                   const std::string& split) {
  RUNNEL_ASSIGN_OR_RETURN(const fs::path path, Find(folders, split));
  RUNNEL_ASSIGN_OR_RETURN(std::string text, ReadText(path));
  if (static_cast<int64_t>(text.size()) <= kPositions) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": has ", text.size(),
                                                   " bytes, one sample needs ", kPositions + 1,
                                                   "; fetch the file again"));
  }
  return std::make_unique<TextDataset>(std::move(text));
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadWikitext2(absl::string_view data_dir, uint64_t) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<fs::path> folders,
                          SearchFolders("wikitext2", data_dir, {"wikitext2"}));
  DatasetSplits splits;
  RUNNEL_ASSIGN_OR_RETURN(splits.train, LoadSplit(folders, "train"));
  RUNNEL_ASSIGN_OR_RETURN(splits.test, LoadSplit(folders, "test"));
  return splits;
}

}  // namespace runnel::data
