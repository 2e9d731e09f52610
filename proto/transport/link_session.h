#pragma once

// What makes a link outlive its connections: frames are kept until the peer has consumed them,
// resent verbatim after a reconnect, and delivered once (DESIGN section 5). A state machine: no
// thread, no clock; one owner calls it.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "proto/transport/transport.h"

namespace runnel {

// Traffic of one session since its start, by direction.
struct LinkCounters {
  int64_t frames_sent = 0;  // first transmissions of data frames
  int64_t frames_resent = 0;
  int64_t bytes_sent = 0;      // header + payload of first transmissions
  int64_t bytes_received = 0;  // header + payload of frames delivered
  int64_t frames_received = 0;
  int64_t duplicates_dropped = 0;
  int64_t stale_dropped = 0;  // of an older generation
};

class LinkSession {
 public:
  // Takes one data frame, in order, once. The owner calls Acknowledge when it has consumed it.
  using DeliverFn = std::function<void(Frame frame)>;

  explicit LinkSession(DeliverFn deliver);

  // Sends a data frame (sealed here), or keeps it until there is a connection. Within a kind,
  // sequences ascend.
  void Send(Frame frame);
  // Tells the peer that everything of this kind up to `sequence` is consumed.
  void Acknowledge(FrameKind kind, Generation generation, Sequence sequence);
  // A new connection: resends what is not acknowledged. Replaces the one before.
  void Connected(std::shared_ptr<Connection> connection);
  // The current connection ended.
  void Disconnected();
  // A frame from the connection, data or ack. InvalidArgument for one that cannot be: the owner
  // closes the connection.
  absl::Status Received(Frame frame);
  // Starts a generation: older unacknowledged frames are forgotten, older arrivals dropped and
  // counted.
  void StartGeneration(Generation generation);

  bool connected() const { return connection_ != nullptr; }
  // Data frames sent and not acknowledged, of this kind.
  int64_t unacknowledged(FrameKind kind) const;
  const LinkCounters& counters() const { return counters_; }

 private:
  struct Stream {
    std::deque<Frame> unacknowledged;
    int64_t last_delivered = -1;
    int64_t last_acknowledged = -1;  // what we told the peer
  };

  DeliverFn deliver_;
  std::shared_ptr<Connection> connection_;
  Generation generation_;
  std::map<FrameKind, Stream> streams_;
  LinkCounters counters_;
};

}  // namespace runnel
