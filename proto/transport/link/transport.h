#pragma once

// The contract of a transport: connections that carry frames, in order, both ways, until they
// break. Implementations: loopback (in process; tests and simulator only), simulated (virtual time,
// seeded faults), grpc, and relay, which wraps another one. Each passes tests/conformance/transport_conformance_test.cc. What survives
// a broken connection is LinkSession's business (link_session.h).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/transport/link/frame.h"

namespace runnel {

// Receives what happens on one connection. Calls come one at a time, in order, on a thread of the
// transport; they must not block. After OnClosed nothing more comes.
class ConnectionObserver {
 public:
  virtual ~ConnectionObserver() = default;
  // A header has come in, its payload has not: the place to check kind, generation and size. Not
  // OK: the connection is closed with this status and nothing is allocated.
  virtual absl::Status OnHeader(const FrameHeader& header) = 0;
  // A complete frame; its CRC is right.
  virtual void OnFrame(Frame frame) = 0;
  // OK: the peer or we closed it in order. Unavailable: it broke. InvalidArgument / DataLoss: the
  // peer sent bad bytes.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// One end of an established connection. Thread-safe. Destroying it closes it; OnClosed is then
// still called once, at the latest during the destructor, and never after it. Queued frames still
// leave if Close() was called before; otherwise they are lost and the peer hears Unavailable. It
// may be destroyed within a call of its observer; OnClosed then comes within that call.
class Connection {
 public:
  virtual ~Connection() = default;
  // Queues a sealed frame; returns at once, the payload is shared, not copied. Frames leave in
  // order. Unavailable once the connection is closed (the frame is then lost; sessions resend).
  virtual absl::Status Send(const Frame& frame) = 0;
  // Closes in order after the queued frames. Frames may arrive until OnClosed; the peer can send no
  // more then.
  virtual void Close() = 0;
  // Payload and header bytes handed over for sending that have not left yet.
  virtual int64_t queued_bytes() const = 0;
  // Accepting end: who dials, as "worker/pi-1", if the transport makes peers prove it; else empty.
  virtual std::string peer() const { return ""; }
};

// Limits and shaping of what one end sends. The defaults do not shape.
struct LinkShaping {
  double megabits_per_second = 0;  // token bucket over header and payload bytes; 0: unlimited
  double delay_ms = 0;             // added to each frame's arrival, order kept

  bool enabled() const { return megabits_per_second > 0 || delay_ms > 0; }
};

// Whom to dial.
struct DialTarget {
  DialTarget(const char* to) : address(to) {}  // NOLINT: as plain as an address
  DialTarget(std::string to, std::string who = "", std::string shown = "")  // NOLINT: the same
      : address(std::move(to)), peer(std::move(who)), token(std::move(shown)) {}

  std::string address;
  // Name that the other end must have, as Connection::peer gives it; nobody else gets a byte.
  // Empty: this process itself. Transports without certificates do not look at it.
  std::string peer;
  // Token of the link: shows central's relay that this end may be there, if the address cannot be
  // dialled (relay_transport.h). Empty: no relay.
  std::string token;
};

// A listener's answer to a new connection: an observer, which must outlive it, and the place where
// the transport puts the connection (called once, before any event, on a transport thread).
struct Accepted {
  ConnectionObserver* observer = nullptr;
  LinkShaping shaping;
};
using AcceptFn = std::function<Accepted(std::shared_ptr<Connection> connection)>;

// Accepts connections until destroyed; destroying it closes those it accepted, at once: their
// OnClosed has been called when the destructor returns, their peers hear Unavailable.
class Listener {
 public:
  virtual ~Listener() = default;
  // Address that peers dial, with the port chosen for port 0: "127.0.0.1:40123".
  virtual std::string address() const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Port 0 is one that is free. InvalidArgument: the address makes no sense. AlreadyExists: the
  // port is in use; the message names it.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                           AcceptFn accept) = 0;
  // Starts a connection; `observer` must outlive it. An unreachable peer, or another than the one
  // that must be there, shows as OnClosed(Unavailable).
  virtual absl::StatusOr<std::shared_ptr<Connection>> Dial(const DialTarget& to,
                                                           ConnectionObserver* observer,
                                                           const LinkShaping& shaping) = 0;
};

}  // namespace runnel
