#pragma once

// The token by which a device joins a cluster once: a secret, and the hash of the cluster's signing
// key, by which the device recognises this cluster.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

struct JoinToken {
  std::string secret;          // 16 bytes
  std::string authority_hash;  // KeyHash of the signing certificate

  // "rj1-" and 64 characters of web-safe base64.
  std::string ToString() const;
  friend bool operator==(const JoinToken&, const JoinToken&) = default;
};

JoinToken NewJoinToken(std::string authority_hash);
// InvalidArgument: not as ToString writes it.
absl::StatusOr<JoinToken> ParseJoinToken(absl::string_view text);

// TOKEN@HOST:PORT
struct JoinOrder {
  JoinToken token;
  std::string address;
};
// InvalidArgument names --join.
absl::StatusOr<JoinOrder> ParseJoinOrder(absl::string_view text);

}  // namespace runnel
