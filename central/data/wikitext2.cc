#include <algorithm>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "central/data/data_files.h"
#include "central/data/loaders.h"
#include "central/data/own/vocabulary.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPositions = 128;  // of a sample

// Windows of a text one behind the other; the labels of a window are the tokens behind its own.
class TextDataset final : public Dataset {
 public:
  // words: by token; of bytes none.
  TextDataset(std::vector<Token> text, int64_t tokens, std::vector<std::string> words)
      : text_(std::move(text)), tokens_(tokens), words_(std::move(words)) {}

  int64_t size() const override { return (static_cast<int64_t>(text_.size()) - 1) / kPositions; }
  const Shape& sample_shape() const override { return shape_; }
  int64_t classes() const override { return tokens_; }
  int64_t tokens() const override { return tokens_; }
  int64_t labels_per_sample() const override { return kPositions; }
  void CopySample(int64_t index, absl::Span<float> out) const override {
    std::copy_n(text_.begin() + index * kPositions, kPositions, out.begin());
  }
  int32_t label(int64_t index) const override { return text_[static_cast<size_t>(index + 1)]; }
  std::string class_name(int64_t label) const override {
    return words_.empty() ? ByteName(label) : words_[static_cast<size_t>(label)];
  }
  DataDescription Describe() const override {
    return {.kind = "wikitext2",
            .sample = shape_,
            .classes = words_,
            .vocabulary = words_.empty() ? "bytes" : "words"};
  }

 private:
  const Shape shape_ = {kPositions};
  const std::vector<Token> text_;
  const int64_t tokens_;  // what a token can be
  const std::vector<std::string> words_;
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

// Both splits; tokens_of: the tokens of a text, of the training's first.
absl::StatusOr<DatasetSplits> Load(
    absl::string_view data_dir, absl::string_view unit,
    absl::FunctionRef<absl::StatusOr<std::vector<Token>>(absl::string_view text, bool is_training)>
        tokens_of,
    absl::FunctionRef<std::vector<std::string>()> words) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<fs::path> folders,
                          SearchFolders("wikitext2", data_dir, {"wikitext2"}));
  DatasetSplits splits;
  for (const bool is_training : {true, false}) {
    RUNNEL_ASSIGN_OR_RETURN(const fs::path path, Find(folders, is_training ? "train" : "test"));
    RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
    absl::StatusOr<std::vector<Token>> tokens = tokens_of(text, is_training);
    if (!tokens.ok())
      return absl::InvalidArgumentError(
          absl::StrCat(path.string(), ": ", tokens.status().message()));
    if (static_cast<int64_t>(tokens->size()) <= kPositions) {
      return absl::InvalidArgumentError(absl::StrCat(path.string(), ": has ", tokens->size(), " ",
                                                     unit, ", one sample needs ", kPositions + 1,
                                                     "; fetch the file again"));
    }
    std::vector<std::string> names = words();
    const int64_t count = names.empty() ? kByteTokens : std::ssize(names);
    (is_training ? splits.train : splits.test) =
        std::make_unique<TextDataset>(*std::move(tokens), count, std::move(names));
  }
  return splits;
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadWikitext2(absl::string_view data_dir, uint64_t) {
  const auto tokens_of = [](absl::string_view text, bool) -> absl::StatusOr<std::vector<Token>> {
    return ByteTokens(text);
  };
  return Load(data_dir, "bytes", tokens_of, [] { return std::vector<std::string>(); });
}

absl::StatusOr<DatasetSplits> LoadWikitext2Words(absl::string_view data_dir, uint64_t) {
  Vocabulary vocabulary;
  const auto tokens_of = [&](absl::string_view text, bool is_training) {
    return vocabulary.Read(text, is_training);
  };
  return Load(data_dir, "words", tokens_of, [&] { return vocabulary.words(); });
}

}  // namespace runnel::data
