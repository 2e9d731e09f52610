#pragma once

// A device's side of the join door: with a token it gets a certificate.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/crypto/identity.h"
#include "proto/crypto/join_token.h"

namespace runnel {

struct JoinOptions {
  JoinToken token;
  std::string host;
  int port = 0;
  std::string name;  // wished; empty: the token's, else otherwise_name
  std::string otherwise_name;
  int64_t timeout_ms = 30'000;  // for the whole exchange; a vain connect is repeated
  // A line for people, once, when nobody has answered for some seconds; null: none.
  std::function<void(const std::string& line)> tell = nullptr;
  WallClock now_s = SystemWallClock();
};

struct Joined {
  Identity identity;
  int control_port = 0;  // on the same host
};

// Blocks. Nothing of the token is sent before the peer has shown that it holds a certificate of the
// cluster whose hash the token has. Unavailable: nobody answered in time. PermissionDenied: the
// peer is another cluster's central, or refused the token: why. InvalidArgument: no address, or no
// join door there.
absl::StatusOr<Joined> JoinCluster(const JoinOptions& options);

}  // namespace runnel
