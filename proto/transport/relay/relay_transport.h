#pragma once

// A transport whose peers need not be reachable: who cannot be dialled at his address (a phone
// behind a router, a firewall) is reached through central's control port, which everybody can dial.
//
//   this end                     central                        the other end
//   dials central, shows the     checks who it is; sends        dials central, shows the ticket
//   link's token                 RelayWanted with a ticket
//                 <------- bytes are copied from one to the other ------->
//
// Above that a relayed connection is one like any other: hello, greeting, frames and their CRCs are
// those of the two ends. Which way a dial takes: dial_route.h.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "proto/base/clock.h"
#include "proto/transport/link/transport.h"
#include "proto/transport/relay/dial_route.h"

namespace runnel {

struct RelayOptions {
  Transport* transport = nullptr;  // borrowed: carries everything
  const Clock* clock = nullptr;    // borrowed
  DialTarget relay;                // central's control port, and who is there
  std::string self;                // this end's name (Connection::peer)
  bool relays_all = false;         // no dial goes straight
};

// The contract of Transport. A target without a token is dialled as `transport` does it. The
// listeners go before the transport.
class RelayTransport final : public Transport {
 public:
  explicit RelayTransport(RelayOptions options);
  ~RelayTransport() override;

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   AcceptFn accept) override;
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const DialTarget& to,
                                                   ConnectionObserver* observer,
                                                   const LinkShaping& shaping) override;
  // Central says that `from` waits for this end (RelayWanted): its oldest listener, if there is
  // one, has a connection with him. Any thread.
  void Answer(const std::string& ticket, const std::string& from);

 private:
  class Routes;
  class Door;
  class RelayListener;

  absl::StatusOr<std::shared_ptr<Connection>> DialBy(DialRoute::Way way, const DialTarget& to,
                                                     ConnectionObserver* observer,
                                                     const LinkShaping& shaping);

  const RelayOptions options_;
  const std::shared_ptr<Routes> routes_;
  std::mutex mutex_;
  std::weak_ptr<Door> door_;  // the oldest listener's; guarded by mutex_
};

}  // namespace runnel
