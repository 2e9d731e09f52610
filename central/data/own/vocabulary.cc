#include "central/data/own/vocabulary.h"

#include <limits>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

// Calls use with each word, and with the mark behind each line.
absl::Status ForEachWord(absl::string_view text,
                         absl::FunctionRef<absl::Status(absl::string_view word)> use) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    for (absl::string_view word :
         absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
      RUNNEL_RETURN_IF_ERROR(use(word));
    }
    const bool is_rest = line.data() + line.size() == text.data() + text.size();
    if (!is_rest) RUNNEL_RETURN_IF_ERROR(use("<eos>"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Token> ByteTokens(absl::string_view text) {
  std::vector<Token> tokens;
  tokens.reserve(text.size());
  for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
  return tokens;
}

std::string ByteName(int64_t byte) {
  if (byte == '\n') return "newline";
  if (byte == '\t') return "tab";
  const auto character = static_cast<unsigned char>(byte);
  if (absl::ascii_isprint(character)) return absl::StrFormat("'%c'", character);
  return absl::StrFormat("0x%02x", byte);
}

std::vector<std::string> Vocabulary::words() const {
  std::vector<std::string> words(numbers_.size());
  for (const auto& [word, number] : numbers_) words[number] = word;
  return words;
}

absl::StatusOr<Vocabulary> Vocabulary::Of(const std::vector<std::string>& words) {
  Vocabulary vocabulary;
  for (const std::string& word : words) {
    if (vocabulary.numbers_.contains(word)) {
      return absl::InvalidArgumentError(
          absl::StrCat("has the word '", word.substr(0, 40), "' twice"));
    }
    RUNNEL_RETURN_IF_ERROR(vocabulary.Grow(word));
  }
  return vocabulary;
}

absl::Status Vocabulary::Grow(absl::string_view word) {
  if (numbers_.contains(word)) return absl::OkStatus();
  if (size() > std::numeric_limits<Token>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("has more than ", size(),
                                                   " different words; take --data wikitext2, "
                                                   "which reads bytes"));
  }
  numbers_.emplace(word, static_cast<Token>(size()));
  return absl::OkStatus();
}

absl::StatusOr<Token> Vocabulary::Find(absl::string_view word) const {
  auto it = numbers_.find(word);
  if (it == numbers_.end()) it = numbers_.find("<unk>");
  if (it != numbers_.end()) return it->second;
  return absl::InvalidArgumentError(
      absl::StrCat("the word '", word.substr(0, 40),
                   "' is not in the training text, which has no <unk> for it either"));
}

absl::StatusOr<std::vector<Token>> Vocabulary::Read(absl::string_view text, bool grow) {
  if (grow)
    RUNNEL_RETURN_IF_ERROR(
        ForEachWord(text, [this](absl::string_view word) { return Grow(word); }));
  return static_cast<const Vocabulary*>(this)->Read(text);
}

absl::StatusOr<std::vector<Token>> Vocabulary::Read(absl::string_view text) const {
  std::vector<Token> tokens;
  RUNNEL_RETURN_IF_ERROR(ForEachWord(text, [&](absl::string_view word) -> absl::Status {
    RUNNEL_ASSIGN_OR_RETURN(const Token token, Find(word));
    tokens.push_back(token);
    return absl::OkStatus();
  }));
  return tokens;
}

}  // namespace runnel::data
