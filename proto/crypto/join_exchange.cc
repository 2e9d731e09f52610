#include "proto/crypto/join_exchange.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace runnel {
namespace {

constexpr char kGreeting[] = "runnel-join 1\n";
constexpr char kEnd[] = "\n\n";
constexpr char kYes[] = "yes ", kNo[] = "no ";
constexpr size_t kMaxReasonBytes = 512;

}  // namespace

// PEM texts have no empty line.
std::string JoinRequest::ToString() const {
  return absl::StrCat(kGreeting, absl::BytesToHexString(secret), "\n", name, " ", otherwise_name,
                      "\n", request_pem, "\n");
}

bool IsWholeJoinRequest(absl::string_view text) { return absl::EndsWith(text, kEnd); }

absl::StatusOr<JoinRequest> ParseJoinRequest(absl::string_view text) {
  const auto bad = [] { return absl::InvalidArgumentError("join: is no request to join"); };
  if (text.size() > kMaxJoinRequestBytes || !absl::ConsumePrefix(&text, kGreeting) ||
      !IsWholeJoinRequest(text)) {
    return bad();
  }
  text.remove_suffix(1);
  const std::vector<std::string> lines = absl::StrSplit(text, absl::MaxSplits('\n', 2));
  if (lines.size() != 3 || lines[0].size() != 32) return bad();
  const std::vector<std::string> names = absl::StrSplit(lines[1], ' ');
  if (names.size() != 2) return bad();
  for (const char digit : lines[0]) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit))) return bad();
  }
  return JoinRequest{absl::HexStringToBytes(lines[0]), names[0], names[1], lines[2]};
}

std::string JoinReply::ToString() const {
  return absl::StrCat(kYes, control_port, "\n", certificate_pem);
}

std::string JoinRefusal(absl::string_view why) {
  return absl::StrCat(kNo, why.substr(0, kMaxReasonBytes), "\n");
}

absl::StatusOr<JoinReply> ParseJoinReply(absl::string_view text) {
  const size_t line = text.find('\n');
  const absl::string_view first = text.substr(0, line);
  if (line == text.npos || text.size() > kMaxJoinReplyBytes)
    return absl::InvalidArgumentError("join: is no reply");
  absl::string_view word = first;
  // The peer chose these bytes: as they are they may not reach a terminal.
  if (absl::ConsumePrefix(&word, kNo)) return absl::PermissionDeniedError(absl::CEscape(word));
  JoinReply reply;
  if (!absl::ConsumePrefix(&word, kYes) || !absl::SimpleAtoi(word, &reply.control_port) ||
      reply.control_port < 1 || reply.control_port > 65535) {
    return absl::InvalidArgumentError("join: is no reply");
  }
  reply.certificate_pem = std::string(text.substr(line + 1));
  return reply;
}

}  // namespace runnel
