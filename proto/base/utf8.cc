#include "proto/base/utf8.h"

#include <cstddef>
#include <cstdint>

namespace runnel {
namespace {

// Bytes of the character that begins with this one; 0: none does.
size_t LengthOf(uint8_t first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

// The second byte keeps out overlong forms, surrogates and what is above U+10FFFF.
bool MayFollow(uint8_t first, uint8_t second) {
  if (first == 0xE0) return second >= 0xA0;
  if (first == 0xED) return second < 0xA0;
  if (first == 0xF0) return second >= 0x90;
  if (first == 0xF4) return second < 0x90;
  return true;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const auto first = static_cast<uint8_t>(text[0]);
    const size_t length = LengthOf(first);
    if (length == 0 || length > text.size()) return false;
    for (size_t i = 1; i < length; ++i) {
      if ((static_cast<uint8_t>(text[i]) & 0xC0) != 0x80) return false;
    }
    if (length > 1 && !MayFollow(first, static_cast<uint8_t>(text[1]))) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace runnel
