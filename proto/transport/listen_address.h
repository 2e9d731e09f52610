#pragma once

#include "absl/status/status.h"
#include "proto/transport/address.h"

namespace runnel {

// Whether `address` may be listened on. InvalidArgument: the host is no IP literal nor "localhost",
// or not one of this machine. PermissionDenied: it is not on the loopback interface and
// `allow_non_loopback` is false, or the system forbids the port. AlreadyExists: the port is in use;
// the message names it.
absl::Status CheckListenable(const Address& address, bool allow_non_loopback);

}  // namespace runnel
