#include "proto/transport/control/wire_check.h"

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

// Bytes of the well-formed character at `at`, 0: there is none. Table 3-7 of the Unicode standard.
size_t CharacterBytes(absl::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const auto follows = [&](size_t i) { return byte(i) >= 0x80 && byte(i) <= 0xBF; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  if (first < 0xE0) return follows(1) ? 2 : 0;
  unsigned low = 0x80, high = 0xBF;
  if (first == 0xE0) low = 0xA0;   // overlong
  if (first == 0xED) high = 0x9F;  // surrogates
  if (first == 0xF0) low = 0x90;   // overlong
  if (first == 0xF4) high = 0x8F;  // over U+10FFFF
  if (byte(1) < low || byte(1) > high || !follows(2)) return 0;
  if (first < 0xF0) return 3;
  return follows(3) ? 4 : 0;
}

}  // namespace

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, " is not in ", low, "..", high));
}

absl::Status CheckCount(absl::string_view field, int64_t count, int64_t low, int64_t high) {
  if (count >= low && count <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": has ", count, " entries, not ", low, "..", high));
}

absl::Status CheckReal(absl::string_view field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();  // NaN is neither
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, " is not a number in ", low, "..", high));
}

absl::Status CheckText(absl::string_view field, const std::string& value) {
  if (value.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", value.size(), " bytes are over ", kMaxTextBytes));
  }
  for (const char c : value) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      return absl::InvalidArgumentError(absl::StrCat(field, ": has a control character"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckName(absl::string_view field, const std::string& value) {
  if (value.empty()) return absl::InvalidArgumentError(absl::StrCat(field, ": is empty"));
  return CheckText(field, value);
}

absl::Status CheckNamed(absl::string_view field, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", status.message()));
}

std::string CleanUtf8(absl::string_view text, size_t max_bytes) {
  std::string clean;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CharacterBytes(text, at);
    const absl::string_view character = bytes > 0 ? text.substr(at, bytes) : "?";
    if (clean.size() + character.size() > max_bytes) break;
    clean.append(character.data(), character.size());
    at += bytes > 0 ? bytes : 1;
  }
  return clean;
}

}  // namespace runnel
