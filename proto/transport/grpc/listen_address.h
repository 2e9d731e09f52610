#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/transport/link/address.h"

namespace runnel {

// The address to listen on: `text` (address.h) with "localhost" as 127.0.0.1, if it may be listened
// on. InvalidArgument: it makes no sense, its host is no IP literal or is not one of this machine.
// PermissionDenied: it is not on the loopback interface and `allow_non_loopback` is false, or the
// system forbids the port. AlreadyExists: the port is in use; the message names it.
absl::StatusOr<Address> ToListenAddress(const std::string& text, bool allow_non_loopback);

// PermissionDenied: `address` is not on the loopback interface and `allow_non_loopback` is false.
absl::Status CheckDialAddress(const Address& address, bool allow_non_loopback);

// The address of this machine by which it reaches `peer`, as the routes stand now: what a peer
// behind the same network can dial. Nothing is sent. Unavailable: no route, or a name that cannot
// be looked up.
absl::StatusOr<std::string> LocalHostTowards(const Address& peer);

}  // namespace runnel
