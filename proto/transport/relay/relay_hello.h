#pragma once

// The first frame that an end sends to central's relay. What follows it goes to the other end as it
// is; the relay itself never sends a frame.

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "proto/transport/link/frame.h"

namespace runnel {

inline constexpr size_t kMaxRelayHelloBytes = 1024;

struct RelayHello {
  // false: this end wants to reach somebody. true: it was asked to come (RelayWanted).
  bool answers = false;
  // From a dialling end: the link's token (LinkTarget). From the asked end: the ticket.
  std::string secret;
  // From a dialling end: its name, as Connection::peer gives it.
  std::string from = {};
};

Frame MakeRelayHello(const RelayHello& hello);
// InvalidArgument: it is none.
absl::StatusOr<RelayHello> ParseRelayHello(const Frame& frame);

}  // namespace runnel
