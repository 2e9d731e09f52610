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
  // Of who wants to reach somebody: the link's token (LinkTarget). Of who was asked: the ticket.
  std::string secret;
  // Of who wants to reach somebody: who he says he is, as Connection::peer says it.
  std::string from = {};
};

Frame MakeRelayHello(const RelayHello& hello);
// InvalidArgument: it is none.
absl::StatusOr<RelayHello> ParseRelayHello(const Frame& frame);

}  // namespace runnel
