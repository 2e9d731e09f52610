#pragma once

// Makes a link outlive its connections: frames are kept until the peer has consumed them, resent
// verbatim after a reconnect, and delivered once. A state machine: no thread, no clock; one owner
// calls it.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/transport/link/transport.h"

namespace runnel {

// A frame that its receiver can measure the link by (bandwidth.h).
inline constexpr int64_t kLargeFrameBytes = 16 * 1024;

// Traffic of one session since its start, by direction.
struct LinkCounters {
  int64_t frames_sent = 0;  // first transmissions of data frames
  int64_t frames_resent = 0;
  int64_t large_frames_sent = 0;  // frames of kLargeFrameBytes and more among frames_sent
  int64_t bytes_sent = 0;         // header + payload of first transmissions
  int64_t bytes_received = 0;     // header + payload of frames delivered
  int64_t frames_received = 0;
  int64_t duplicates_dropped = 0;
  int64_t stale_dropped = 0;  // frames of an older generation
};

// Both ends rely on this: a connection keeps order, and after Connected() an end first sends the
// unacknowledged frames, in the order of their first sending. So within a kind (generation,
// sequence) ascends strictly on one connection; only a new connection brings repetitions.
class LinkSession {
 public:
  // Takes one data frame, in order, once. The owner calls Acknowledge when it has consumed it. May
  // call back into the session.
  using DeliverFn = std::function<void(Frame frame)>;

  // Frames of a generation that the owner has not started yet are held, at most this many.
  static constexpr size_t kMaxEarlyFrames = 1024;
  // Acknowledgements of a kind wait for a data frame until they are for this many sequences: the
  // sender keeps one frame less for longer.
  static constexpr int64_t kMostOwed = 2;

  explicit LinkSession(DeliverFn deliver);

  // Sends a data frame (sealed here), or keeps it until there is a connection. Within a kind,
  // (generation, sequence) ascends; gaps are allowed. A frame of an older generation than the
  // current one is dropped and counted.
  void Send(Frame frame);
  // Tells the peer that everything of this kind up to `sequence` is consumed. No effect for an
  // older generation, or below an earlier call. Acknowledgements of activations and gradients,
  // which both ends send, go along with the next data frame: a message by itself costs both
  // processors a wake-up. Sent at once: acknowledgements of other kinds, every kMostOwed-th, and
  // those owed when a new connection comes.
  void Acknowledge(FrameKind kind, Generation generation, Sequence sequence);
  // Acknowledgements of this kind are sent at once: no frames go back that they could go along with.
  void AcknowledgeAtOnce(FrameKind kind) { streams_[kind].is_acknowledged_at_once = true; }
  // Takes a new connection after the hellos: repeats the acknowledgements and resends
  // unacknowledged frames. Replaces the old connection, whose frames must no longer be passed in.
  void Connected(std::shared_ptr<Connection> connection);
  // The current connection ended.
  void Disconnected();
  // Takes a frame from the current connection, data or ack. InvalidArgument for an impossible one:
  // the owner closes the connection. Impossible are: a hello, a probe, an ack of an unsent frame or
  // of no data kind, a sequence that does not ascend on this connection, too many early frames.
  absl::Status Received(Frame frame);
  // Starts a generation: older unacknowledged frames are forgotten, older arrivals dropped and
  // counted; frames of it that came early are delivered now. Not newer than the current: no effect.
  void StartGeneration(Generation generation);

  bool connected() const { return connection_ != nullptr; }
  Generation generation() const { return generation_; }
  // Data frames sent and not acknowledged, of this kind.
  int64_t unacknowledged(FrameKind kind) const;
  const LinkCounters& counters() const { return counters_; }

 private:
  // A frame's place within its kind.
  struct Position {
    Generation generation;
    Sequence sequence{-1};
    friend auto operator<=>(const Position&, const Position&) = default;
  };
  struct Kept {
    int64_t order = 0;  // order of Send calls, over all kinds
    bool transmitted = false;
    Frame frame;
  };
  struct Stream {
    std::deque<Kept> unacknowledged;
    Position last_transmitted;       // last of our frames, over all connections
    Position last_on_connection;     // last of the peer's frames, on the current connection
    Sequence last_delivered{-1};     // in the current generation
    Sequence last_acknowledged{-1};  // consumed by our owner, in the current generation
    Sequence last_told{-1};          // acknowledged to the peer
    bool is_acknowledged_at_once = false;
  };

  static Position PositionOf(const FrameHeader& header) {
    return {header.generation, header.sequence};
  }
  void Transmit(Stream& stream, Kept& kept);
  void SendAck(FrameKind kind, Stream& stream);
  void SendOwedAcks();
  absl::Status ReceivedAck(const FrameHeader& header);
  absl::Status Dispatch(Frame frame);

  DeliverFn deliver_;
  std::shared_ptr<Connection> connection_;
  Generation generation_;
  std::map<FrameKind, Stream> streams_;
  std::deque<Frame> early_;  // in order of arrival
  int64_t next_order_ = 0;
  LinkCounters counters_;
};

}  // namespace runnel
