#pragma once

// What the tokens of a text are: its bytes, or its words by their numbers.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel::data {

using Token = uint16_t;

inline constexpr int64_t kByteTokens = 256;
std::vector<Token> ByteTokens(absl::string_view text);
// "'a'", "newline", "0xe2".
std::string ByteName(int64_t byte);

// Numbers of the words of a training text, in the order in which they come first.
class Vocabulary {
 public:
  int64_t size() const { return static_cast<int64_t>(numbers_.size()); }
  // By number.
  std::vector<std::string> words() const;

  // InvalidArgument: more than a token can number, or one twice.
  static absl::StatusOr<Vocabulary> Of(const std::vector<std::string>& words);

  // Words of a text between blanks, and a mark behind each line. With `grow` new words get a
  // number, else that of <unk>. InvalidArgument: more words than a token can number, or a new word
  // and no <unk>.
  absl::StatusOr<std::vector<Token>> Read(absl::string_view text, bool grow);
  absl::StatusOr<std::vector<Token>> Read(absl::string_view text) const;

 private:
  absl::Status Grow(absl::string_view word);
  absl::StatusOr<Token> Find(absl::string_view word) const;

  std::map<std::string, Token, std::less<>> numbers_;
};

}  // namespace runnel::data
