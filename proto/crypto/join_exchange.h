#pragma once

// Messages between a device and central at the join door, as text. Bytes come from outside:
// everything is checked. Pure functions.

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

// Most that either may say.
inline constexpr size_t kMaxJoinRequestBytes = 1024;
inline constexpr size_t kMaxJoinReplyBytes = 4096;

struct JoinRequest {
  std::string secret;          // secret of the token
  std::string name;            // wished; empty: the token's, else otherwise_name
  std::string otherwise_name;  // may be empty
  std::string request_pem;     // NewRequest

  std::string ToString() const;
  friend bool operator==(const JoinRequest&, const JoinRequest&) = default;
};
// Whether a request that has come so far is whole.
bool IsWholeJoinRequest(absl::string_view text);
// InvalidArgument: it is none.
absl::StatusOr<JoinRequest> ParseJoinRequest(absl::string_view text);

struct JoinReply {
  int control_port = 0;
  std::string certificate_pem;

  std::string ToString() const;
  friend bool operator==(const JoinReply&, const JoinReply&) = default;
};
// Central's answer to a device that it refuses.
std::string JoinRefusal(absl::string_view why);
// PermissionDenied: central refused, why. InvalidArgument: it is no reply.
absl::StatusOr<JoinReply> ParseJoinReply(absl::string_view text);

}  // namespace runnel
