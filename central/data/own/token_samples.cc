#include "central/data/own/token_samples.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "central/data/data_files.h"
#include "central/data/own/npy_file.h"
#include "central/data/own/vocabulary.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

constexpr int64_t kMostPositions = 1 << 16;

// What all samples of a description share.
struct TokenKind {
  DataDescription description;
  Vocabulary words;    // of vocabulary "words"
  int64_t tokens = 0;  // each is below it

  bool has_classes() const {
    return description.vocabulary == "numbers" && !description.classes.empty();
  }
  int64_t positions() const { return description.sample[0]; }
};

struct TokenRow {
  std::string name;
  std::vector<int32_t> tokens;  // at most as many as positions
};

class TokenSamples final : public Dataset {
 public:
  TokenSamples(std::shared_ptr<const TokenKind> kind, std::vector<TokenRow> rows)
      : kind_(std::move(kind)), rows_(std::move(rows)) {}

  int64_t size() const override { return std::ssize(rows_); }
  const Shape& sample_shape() const override { return kind_->description.sample; }
  int64_t classes() const override {
    return kind_->has_classes() ? std::ssize(kind_->description.classes) : kind_->tokens;
  }
  int64_t tokens() const override { return kind_->tokens; }
  int64_t labels_per_sample() const override {
    return kind_->has_classes() ? 1 : kind_->positions();
  }
  int64_t predicted_label(int64_t index) const override {
    return kind_->has_classes() ? 0 : std::ssize(Row(index).tokens) - 1;
  }
  void CopySample(int64_t index, absl::Span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.0f);
    std::copy(Row(index).tokens.begin(), Row(index).tokens.end(), out.begin());
  }
  int32_t label(int64_t) const override { return 0; }
  std::string class_name(int64_t label) const override {
    const DataDescription& description = kind_->description;
    if (description.vocabulary == "bytes") return ByteName(label);
    return description.classes.empty() ? std::to_string(label)
                                       : description.classes[static_cast<size_t>(label)];
  }
  std::string sample_name(int64_t index) const override { return Row(index).name; }
  DataDescription Describe() const override { return kind_->description; }
  absl::StatusOr<std::unique_ptr<Dataset>> Unlabelled(const std::string& path) const override {
    const bool is_array = absl::EndsWith(path, ".npy");
    RUNNEL_ASSIGN_OR_RETURN(std::vector<TokenRow> rows, is_array ? RowsOf(path) : TextRow(path));
    return std::make_unique<TokenSamples>(kind_, std::move(rows));
  }

 private:
  const TokenRow& Row(int64_t index) const { return rows_[static_cast<size_t>(index)]; }
  // The last tokens of the text.
  absl::StatusOr<std::vector<TokenRow>> TextRow(const std::string& path) const;
  absl::StatusOr<std::vector<TokenRow>> RowsOf(const std::string& path) const;
  // InvalidArgument: so many tokens are no sample of the model's.
  absl::Status CheckLength(const std::string& path, int64_t length) const;

  std::shared_ptr<const TokenKind> kind_;
  std::vector<TokenRow> rows_;
};

absl::Status TokenSamples::CheckLength(const std::string& path, int64_t length) const {
  const bool fits = kind_->has_classes() ? length == kind_->positions() : length > 0;
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": has samples of ", length, " tokens, the model takes ",
                   kind_->has_classes() ? "" : "1 to ", kind_->positions()));
}

absl::StatusOr<std::vector<TokenRow>> TokenSamples::TextRow(const std::string& path) const {
  const DataDescription& description = kind_->description;
  if (description.vocabulary == "numbers") {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is no .npy file; the model was trained on tokens as numbers, from 0 to ",
        kind_->tokens - 1));
  }
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  std::vector<Token> tokens;
  if (description.vocabulary == "bytes") {
    tokens = ByteTokens(text);
  } else {
    absl::StatusOr<std::vector<Token>> words = kind_->words.Read(text);
    if (!words.ok())
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", words.status().message()));
    tokens = *std::move(words);
  }
  RUNNEL_RETURN_IF_ERROR(CheckLength(path, std::ssize(tokens)));
  const int64_t kept = std::min(std::ssize(tokens), kind_->positions());
  return std::vector<TokenRow>{{path, {tokens.end() - kept, tokens.end()}}};
}

absl::StatusOr<std::vector<TokenRow>> TokenSamples::RowsOf(const std::string& path) const {
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<NpyFile> file, NpyFile::Open(path));
  const std::vector<int64_t>& dims = file->sample_dims();
  if (dims.size() > 1)
    return absl::InvalidArgumentError(absl::StrCat(path, ": tokens are (N, positions) or a list"));
  const bool is_list = dims.empty();
  RUNNEL_RETURN_IF_ERROR(CheckLength(path, is_list ? file->count() : dims[0]));
  std::vector<double> row(static_cast<size_t>(is_list ? 1 : dims[0]));
  std::vector<TokenRow> rows;
  for (int64_t i = 0; i < file->count(); ++i) {
    RUNNEL_RETURN_IF_ERROR(file->Read(i, absl::MakeSpan(row)));
    if (!is_list || i == 0) rows.push_back({is_list ? path : absl::StrCat(path, "[", i, "]"), {}});
    std::vector<int32_t>& tokens = rows.back().tokens;
    const int64_t kept = std::min(std::ssize(row), kind_->positions());
    for (auto value = row.end() - kept; value != row.end(); ++value) {
      if (!(*value >= 0 && *value < static_cast<double>(kind_->tokens) &&
            *value == std::floor(*value))) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": token ", *value, " is no whole number below ", kind_->tokens));
      }
      tokens.push_back(static_cast<int32_t>(*value));
    }
    if (std::ssize(tokens) > kind_->positions()) tokens.erase(tokens.begin());
  }
  return rows;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> DescribedTokens(const DataDescription& description) {
  const auto wrong = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("the data's description: ", what...));
  };
  if (description.sample.rank() != 1 || description.sample[0] > kMostPositions)
    return wrong(description.sample.ToString(), " is no sample of tokens");
  auto kind = std::make_shared<TokenKind>();
  kind->description = description;
  if (description.vocabulary == "words") {
    if (description.classes.empty()) {
      return absl::InvalidArgumentError(
          "the model's file is of until 2026-11-27 and does not hold the words of its data, so "
          "that "
          "only its data set's test is predicted; resume the run for a step to keep them");
    }
    absl::StatusOr<Vocabulary> words = Vocabulary::Of(description.classes);
    if (!words.ok()) return wrong(words.status().message());
    kind->words = *std::move(words);
    kind->tokens = kind->words.size();
  } else {
    kind->tokens = description.vocabulary == "bytes" ? kByteTokens : description.tokens;
  }
  if (kind->tokens < 1) return wrong("has no tokens");
  return std::make_unique<TokenSamples>(std::move(kind), std::vector<TokenRow>());
}

}  // namespace runnel::data
