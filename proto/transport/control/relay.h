#pragma once

// Orders to central's relay for a plan, and its reports (proto/transport/relay/relay_transport.h
// explains relays).

#include <cstdint>
#include <string>
#include <vector>

#include "proto/transport/control/connection_id.h"

namespace runnel {

// A stage that somebody may want to reach.
struct RelayPlace {
  std::string token;                  // LinkTarget::token of its links
  ConnectionId worker;                // the control stream of its worker
  std::string peer;                   // name of the end that is dialled (Connection::peer)
  std::vector<std::string> diallers;  // names of those that may dial it: the stage before, central
};

struct RelayPlan {
  Generation generation;
  std::vector<RelayPlace> places;
};

// A connection that central relays.
struct RelayedLink {
  std::string from;  // name of the dialling end
  std::string to;
  int64_t bytes = 0;  // both ways, so far

  friend bool operator==(const RelayedLink&, const RelayedLink&) = default;
};

}  // namespace runnel
