#pragma once

// The worker's end of all data links: the address where peers dial it, whom it lets in, and the
// routes by which it dials them.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/log.h"
#include "proto/base/refusal_log.h"
#include "proto/transport/link/link_shell.h"
#include "proto/transport/relay/relay_transport.h"

namespace runnel {

// Call all methods on the loop's thread, or when it no longer runs; routes and limits are
// thread-safe.
class DataEndpoint {
 public:
  struct Options {
    std::string listen_address;  // WorkerOptions', as the next one
    std::string advertised_address;
    std::string central_address;
    std::string name;  // the worker's
  };

  // `loop`, `transport` and `logger` outlive it. on_hello: a peer who may come has said hello.
  DataEndpoint(Options options, EventLoop* loop, Transport* transport, Logger* logger,
               LinkAcceptor::HelloFn on_hello);

  // Peers are told the addresses: they must lead here from wherever they are. InvalidArgument: one
  // does not.
  absl::Status CheckAddresses() const;
  // Listens at the given address, if there is one. Errors as Transport::Listen.
  absl::Status Listen();
  // Without a given address: listens at any free port of `host`, by which this host reaches central.
  // Errors as Listen, or why there is no `host`.
  absl::Status ListenAt(const absl::StatusOr<std::string>& host);
  bool has_given_address() const { return !options_.listen_address.empty(); }
  // Where peers dial.
  std::string address() const;

  // Whom the stage's links take from now on.
  void Expect(LinkExpectation expectation, const LinkShaping& shaping) {
    acceptor_.Expect(std::move(expectation), shaping);
  }
  RelayTransport& routes() { return routes_; }
  FrameLimits& limits() { return limits_; }

 private:
  const Options options_;
  FrameLimits limits_;
  RelayTransport routes_;
  RefusalLog refusals_;
  LinkAcceptor acceptor_;
};

}  // namespace runnel
