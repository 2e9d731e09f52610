#include <algorithm>
#include <functional>
#include <limits>
#include <map>
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
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

namespace fs = std::filesystem;

using Token = uint16_t;
constexpr int64_t kBytes = 256;
constexpr int64_t kPositions = 128;  // of a sample

// Windows of a text one behind the other; the labels of a window are the tokens behind its own.
class TextDataset final : public Dataset {
 public:
  TextDataset(std::vector<Token> text, int64_t tokens, absl::string_view unit)
      : text_(std::move(text)), tokens_(tokens), unit_(unit) {}

  int64_t size() const override { return (static_cast<int64_t>(text_.size()) - 1) / kPositions; }
  const Shape& sample_shape() const override { return shape_; }
  int64_t classes() const override { return tokens_; }
  int64_t tokens() const override { return tokens_; }
  int64_t labels_per_sample() const override { return kPositions; }
  void CopySample(int64_t index, absl::Span<float> out) const override {
    std::copy_n(text_.begin() + index * kPositions, kPositions, out.begin());
  }
  int32_t label(int64_t index) const override { return text_[static_cast<size_t>(index + 1)]; }
  DataDescription Describe() const override {
    return {.kind = "wikitext2", .sample = shape_, .vocabulary = unit_};
  }

 private:
  const Shape shape_ = {kPositions};
  const std::vector<Token> text_;
  const int64_t tokens_;    // what a token can be
  const std::string unit_;  // what a token is
};

// Numbers of the words of the training text, in the order in which they come first.
class Vocabulary {
 public:
  int64_t size() const { return static_cast<int64_t>(numbers_.size()); }

  // Words of a text between blanks, and a mark behind each line. With `grow` new words get a
  // number, else that of <unk>. InvalidArgument: more words than a token can number, or a new word
  // and no <unk>.
  absl::StatusOr<std::vector<Token>> Read(absl::string_view text, bool grow) {
    std::vector<Token> tokens;
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      for (absl::string_view word :
           absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
        RUNNEL_RETURN_IF_ERROR(Add(word, grow, tokens));
      }
      const bool is_rest = line.data() + line.size() == text.data() + text.size();
      if (!is_rest) RUNNEL_RETURN_IF_ERROR(Add("<eos>", grow, tokens));
    }
    return tokens;
  }

 private:
  absl::Status Add(absl::string_view word, bool grow, std::vector<Token>& tokens) {
    auto it = numbers_.find(word);
    if (it == numbers_.end() && grow) {
      if (size() > std::numeric_limits<Token>::max())
        return absl::InvalidArgumentError(absl::StrCat("has more than ", size(),
                                                       " different words; take --data wikitext2, "
                                                       "which reads bytes"));
      it = numbers_.emplace(word, static_cast<Token>(size())).first;
    } else if (it == numbers_.end()) {
      it = numbers_.find("<unk>");
    }
    if (it == numbers_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the word '", word.substr(0, 40),
                       "' is not in the training text, which has no <unk> for it either"));
    }
    tokens.push_back(it->second);
    return absl::OkStatus();
  }

  std::map<std::string, Token, std::less<>> numbers_;
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
    absl::FunctionRef<int64_t()> token_count) {
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
    (is_training ? splits.train : splits.test) =
        std::make_unique<TextDataset>(*std::move(tokens), token_count(), unit);
  }
  return splits;
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadWikitext2(absl::string_view data_dir, uint64_t) {
  const auto tokens_of = [](absl::string_view text, bool) -> absl::StatusOr<std::vector<Token>> {
    std::vector<Token> tokens;
    tokens.reserve(text.size());
    for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
    return tokens;
  };
  return Load(data_dir, "bytes", tokens_of, [] { return kBytes; });
}

absl::StatusOr<DatasetSplits> LoadWikitext2Words(absl::string_view data_dir, uint64_t) {
  Vocabulary vocabulary;
  const auto tokens_of = [&](absl::string_view text, bool is_training) {
    return vocabulary.Read(text, is_training);
  };
  return Load(data_dir, "words", tokens_of, [&] { return vocabulary.size(); });
}

}  // namespace runnel::data
