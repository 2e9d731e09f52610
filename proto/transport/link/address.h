#pragma once

// "host:port" as transports take and give it.

#include <string>

#include "absl/status/statusor.h"

namespace runnel {

struct Address {
  std::string host;  // without brackets
  int port = 0;      // 0: choose one

  std::string ToString() const;
  // 127.0.0.0/8, ::1 and "localhost". A name that has to be looked up is not.
  bool is_loopback() const;
  // 0.0.0.0 and ::, every interface: to listen on, not to dial.
  bool is_wildcard() const;
};

// InvalidArgument: not "host:port" or "[v6]:port", or no port within 0..65535.
absl::StatusOr<Address> ParseAddress(const std::string& text);

// Whether `text` is an address on the loopback interface.
bool IsLoopbackAddress(const std::string& text);

}  // namespace runnel
