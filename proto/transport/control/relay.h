#pragma once

// What central's relay is told of a plan, and what it tells
// (proto/transport/relay/relay_transport.h says what a relay is).

#include <cstdint>
#include <string>
#include <vector>

#include "proto/transport/control/connection_id.h"

namespace runnel {

// A stage that somebody may want to reach.
struct RelayPlace {
  std::string token;                  // LinkTarget::token of its links
  ConnectionId worker;                // the control stream of its worker
  std::string peer;                   // who that is (Connection::peer)
  std::vector<std::string> diallers;  // who may dial it: the stage before, central
};

struct RelayPlan {
  Generation generation;
  std::vector<RelayPlace> places;
};

// A connection that central relays.
struct RelayedLink {
  std::string from;  // who dialled
  std::string to;
  int64_t bytes = 0;  // both ways, so far

  friend bool operator==(const RelayedLink&, const RelayedLink&) = default;
};

}  // namespace runnel
