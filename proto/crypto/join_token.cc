#include "proto/crypto/join_token.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/sha256.h"

namespace runnel {
namespace {

constexpr char kPrefix[] = "rj1-";
constexpr size_t kSecretBytes = 16, kHashBytes = 32;

}  // namespace

std::string JoinToken::ToString() const {
  return absl::StrCat(kPrefix, absl::WebSafeBase64Escape(secret + authority_hash));
}

JoinToken NewJoinToken(std::string authority_hash) {
  return {RandomBytes(kSecretBytes), std::move(authority_hash)};
}

absl::StatusOr<JoinToken> ParseJoinToken(absl::string_view text) {
  std::string bytes;
  if (!absl::ConsumePrefix(&text, kPrefix) || !absl::WebSafeBase64Unescape(text, &bytes) ||
      bytes.size() != kSecretBytes + kHashBytes) {
    return absl::InvalidArgumentError(
        "is no token: `runnel-central token` prints one, \"rj1-\" and 64 characters");
  }
  return JoinToken{bytes.substr(0, kSecretBytes), bytes.substr(kSecretBytes)};
}

absl::StatusOr<JoinOrder> ParseJoinOrder(absl::string_view text) {
  const size_t at = text.rfind('@');
  if (at == text.npos || at + 1 == text.size())
    return absl::InvalidArgumentError("--join: is not TOKEN@HOST:PORT");
  const absl::StatusOr<JoinToken> token = ParseJoinToken(text.substr(0, at));
  if (!token.ok())
    return absl::InvalidArgumentError(absl::StrCat("--join: ", token.status().message()));
  return JoinOrder{*token, std::string(text.substr(at + 1))};
}

}  // namespace runnel
