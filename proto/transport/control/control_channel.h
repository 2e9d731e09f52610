#pragma once

// The contract of the control plane's streams: one per worker, dialled by the worker, carrying
// whole messages, each once, until it ends. A stream may outlive its connection: the worker dials
// again by itself. Messages with a state (PrepareStage, Snapshot,
// LayersFetched) keep their order among each other, and so do all others; these may overtake those.
// An AbortPlan takes back a PrepareStage that is still on its way. Implementations: grpc
// (grpc_control.h) and loopback (loopback_control.h; in process, for tests and the simulator only).
//
// Threads: Send and Close may be called on any thread, also from an observer, and return at once:
// messages are queued. Observers are called on threads of the transport, for one stream one at a
// time and in order, for different streams possibly at once; they must not block. Objects of this
// contract must not be destroyed on a thread that calls an observer.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/transport/control/connection_id.h"
#include "proto/transport/control/control.h"
#include "proto/transport/control/relay.h"

namespace runnel {

// Progress of states on their way to a worker or from it.
struct TransferProgress {
  int64_t arrived_bytes = 0;
  int64_t total_bytes = 0;     // 0: nothing was on its way to it
  int64_t received_bytes = 0;  // bytes of the state on its way from it; 0 again once it is whole

  friend bool operator==(const TransferProgress&, const TransferProgress&) = default;
};

// Worker side: receives what central says.
class WorkerControlObserver {
 public:
  virtual ~WorkerControlObserver() = default;
  virtual void OnMessage(CentralMessage message) = 0;
  // Called exactly once, last. OK: one of the ends closed in order, everything queued before has
  // arrived. Unavailable: central is gone or the connection broke. InvalidArgument: one of the ends
  // sent a message that the other could not accept; the text names the field.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// Worker side: one stream to central. The first message must be WorkerHello. Destroying it closes
// in order, within the transport's close time-out even if central is stuck; OnClosed has then been
// called.
class WorkerControl {
 public:
  virtual ~WorkerControl() = default;
  // Queues a message. Unavailable: the stream has ended or is closing. ResourceExhausted: the
  // message or the queue is too large (control_parts.h). Nothing is queued then.
  virtual absl::Status Send(WorkerMessage message) = 0;
  // Host address of this end, by which central's network reaches this worker: "192.168.1.11".
  // Unavailable: the system does not tell.
  virtual absl::StatusOr<std::string> LocalHost() const = 0;
  // Closes in order after the queued messages; OnClosed follows, at the latest after the close
  // time-out. Messages that central sends until then may be delivered.
  virtual void Close() = 0;
};

// Central side: receives what all workers say.
class CentralControlObserver {
 public:
  virtual ~CentralControlObserver() = default;
  // A worker has said hello; its WorkerHello follows at once as the first OnMessage, whatever its
  // protocol version is. Streams that say anything else first, or nothing within the hello
  // deadline, are closed with InvalidArgument and never seen here.
  virtual void OnJoined(ConnectionId id) = 0;
  virtual void OnMessage(ConnectionId id, WorkerMessage message) = 0;
  // The stream's connection broke, and its worker can have another one. True: the stream waits for
  // that, whatever time it takes, until it is closed. False: it ends, OnGone follows.
  virtual bool OnBroken(ConnectionId, const absl::Status&) { return false; }
  // There is another one; nothing is lost, and nothing comes twice.
  virtual void OnResumed(ConnectionId) {}
  // Exactly once per joined stream, last. Statuses as WorkerControlObserver::OnClosed.
  virtual void OnGone(ConnectionId id, const absl::Status& status) = 0;
};

// Central side: the listener and all streams that it accepted. Destroying it closes them in order,
// within the transport's close time-out even if workers are stuck; OnGone has then been called for
// each.
class CentralControl {
 public:
  virtual ~CentralControl() = default;
  // Address that workers dial, with the port chosen for port 0: "127.0.0.1:40123".
  virtual std::string address() const = 0;
  // Queues a message. NotFound: there is no such stream (any more). Unavailable: it is closing.
  // ResourceExhausted: the message or the stream's queue is too large. Nothing is queued then.
  virtual absl::Status Send(ConnectionId id, CentralMessage message) = 0;
  // Progress of the messages with a state that this stream has sent since none was on its way, and
  // of the incoming one. All zero: there is no such stream, or messages pass at once.
  virtual TransferProgress Transfer(ConnectionId id) = 0;
  // Limits the bytes that a worker may hand over at a time, a state with its message; before it is
  // welcomed the limit is 0. A stream that brings more ends with InvalidArgument.
  virtual void LimitStates(int64_t) {}
  // From now on data connections that come here are relayed for the links of this plan only;
  // relayed links of the plan before end. Does nothing where all peers reach each other.
  virtual void AllowRelay(RelayPlan) {}
  virtual std::vector<RelayedLink> RelayedLinks() { return {}; }
  // Closes in order after the queued messages (a Refused arrives before the end of the stream);
  // later messages of the worker are dropped, OnGone follows. A worker that does not read them
  // within the close time-out is cut off. No effect on a stream that has ended.
  virtual void Close(ConnectionId id) = 0;
};

// Outlives its streams. Thread-safe.
class ControlTransport {
 public:
  virtual ~ControlTransport() = default;
  // `observer` outlives the result and may be called before this returns. InvalidArgument: the
  // address makes no sense or is not on this machine. PermissionDenied: it may not be listened on.
  // AlreadyExists: the port is in use; the message names it.
  virtual absl::StatusOr<std::unique_ptr<CentralControl>> Listen(
      const std::string& address, CentralControlObserver* observer) = 0;
  // Dials, again and again, until central answers; blocks up to `timeout_ms`. `observer` outlives
  // the result and may be called before this returns, not if this fails. InvalidArgument: the
  // address makes no sense. PermissionDenied: it may not be dialled. Unavailable: "no central
  // answers at 127.0.0.1:7000 ...".
  virtual absl::StatusOr<std::unique_ptr<WorkerControl>> Connect(
      const std::string& address, int64_t timeout_ms, WorkerControlObserver* observer) = 0;
};

}  // namespace runnel
