#pragma once

// Pairs that may meet at central's relay, and pairs that did. A state machine: no thread, no clock,
// no randomness; one owner calls it.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/ids.h"
#include "proto/transport/control/control.h"
#include "proto/transport/control/relay.h"

namespace runnel {

// One attempt to reach another end, until either of the two is gone.
using RelayCallId = StrongInt<struct RelayCallIdTag, int64_t>;

class RelayBook {
 public:
  // Largest number of calls of one place, waiting or connected. A link dials again when its
  // connection has ended, so there are two for a moment; more are a fault.
  static constexpr size_t kMostCallsOfAPlace = 32;

  // Beginning of a call: the end to ask, and the ticket.
  struct Wanted {
    RelayCallId call;
    ConnectionId worker;
    RelayWanted message;
  };

  // Calls of the plan before have no place in this one: they are to be ended.
  std::vector<RelayCallId> Allow(RelayPlan plan);
  // `from` shows a place's token. peer: who it is by its certificate; empty: there is none. ticket:
  // nobody can guess it. PermissionDenied: it may not. Unavailable: kMostCallsOfAPlace.
  absl::StatusOr<Wanted> Dial(const std::string& token, const std::string& from,
                              const std::string& peer, std::string ticket);
  // Somebody shows a ticket: the call that is through now. PermissionDenied: there is no such
  // ticket (any more), or it is another one's.
  absl::StatusOr<RelayCallId> Answer(const std::string& ticket, const std::string& peer);
  // One of the two is gone, or nobody has answered.
  void End(RelayCallId call) { calls_.erase(call); }
  // The link of a call; of a waiting one the wanted link.
  RelayedLink LinkOf(RelayCallId call) const;
  bool IsThrough(RelayCallId call) const;

 private:
  struct Call {
    size_t place = 0;  // in plan_
    std::string from;
    std::string ticket;  // empty: it was shown
  };

  RelayPlan plan_;
  std::map<RelayCallId, Call> calls_;
  RelayCallId last_;
};

}  // namespace runnel
