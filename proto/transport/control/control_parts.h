#pragma once

// Control messages as wire messages. Wire is proto::FromWorker or proto::FromCentral. Two lanes:
//
//   quick   messages of up to kWholeMessageBytes, each whole, in order
//   bulk    messages with a model's state, and larger ones: a state goes layer by layer ahead of
//           its message, each in Parts of kPartBytes; a SendWindow bounds the Parts on their way
//
// Within a lane order is kept. Quick messages overtake bulk ones, so a state that takes minutes to
// send holds nothing else up. A message that must come behind a state goes in the bulk lane too, or
// its sender waits for the answer.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"
#include "proto/transport/control/control_channel.h"
#include "proto/transport/control/send_window.h"

namespace runnel {

// Serialized bytes up to which a message without a state goes whole.
inline constexpr size_t kWholeMessageBytes = size_t{1} << 20;
// Largest content of a Part: a link of 0.25 Mbps takes half a second for it.
inline constexpr size_t kPartBytes = size_t{16} << 10;
// Largest wire message, and a receiver's limit.
inline constexpr size_t kMaxWireMessageBytes = kWholeMessageBytes + 64;
// Largest message with its state, serialized.
inline constexpr size_t kMaxControlMessageBytes = (size_t{1} << 31) - 1;
// Largest size of one stream's queue.
inline constexpr size_t kMaxQueuedControlBytes = size_t{1} << 32;

// InvalidArgument: a worker's message of this kind is never so large. wire_bytes: of the wire
// message that completed it.
absl::Status CheckWireSize(const proto::FromWorker& message, size_t wire_bytes);

// Acknowledgements that came beside messages. Bytes are those of Parts.
struct PartNews {
  int64_t read = 0;     // bytes of the peer's Parts that were read, which the peer waits to hear of
  int64_t arrived = 0;  // bytes of our Parts that have arrived, by the peer's report
  int64_t counted = 0;  // messages that count in a session (control_session.h)
  std::optional<int64_t> received = {};  // messages of ours, as the peer says
  bool goodbye = false;
};

// Messages on their way out. Not thread-safe.
template <typename Wire>
class OutgoingMessages {
 public:
  explicit OutgoingMessages(size_t max_queued_bytes = kMaxQueuedControlBytes)
      : max_queued_bytes_(max_queued_bytes) {}

  // ResourceExhausted: the message is over kMaxControlMessageBytes or the queue would be over its
  // limit. Internal: the message cannot be serialized. Nothing is queued then.
  absl::Status Push(Wire message);
  // Sends a heartbeat beside the others, in place of one that has not left. It does not count.
  void PushHeartbeat(const Wire& message) { heartbeat_ = message.SerializeAsString(); }
  // A heartbeat that waits, serialized; empty: none does.
  std::string TakeHeartbeat() { return std::exchange(heartbeat_, {}); }
  // The next wire message, serialized; nothing if there is none, or if Parts must arrive first.
  std::optional<std::string> Next(int64_t now_ns);
  // Takes the other direction's acknowledgements. InvalidArgument: more has arrived than was sent.
  absl::Status Settle(const PartNews& news, int64_t now_ns);
  // Drops the bulk lane's messages; the peer forgets its parts of them.
  void DropBulk();
  // The peer will acknowledge nothing more: nothing waits from now on.
  void SendWithoutWaiting() { window_.Open(); }
  void Clear();

  // Whether nothing waits to be sent.
  bool empty() const { return quick_.empty() && bulk_.empty(); }
  // Progress of the bulk lane since it was last empty.
  TransferProgress progress() const { return progress_; }

 private:
  absl::Status CheckRoom(size_t bytes) const;
  absl::Status PushQuick(const Wire& message);
  void PushBulk(Wire message);
  std::optional<std::string> NextPart(int64_t now_ns);

  size_t max_queued_bytes_;
  std::string heartbeat_;          // serialized
  std::deque<std::string> quick_;  // serialized
  std::deque<Wire> bulk_;          // layers, and the messages that they belong to behind them
  size_t queued_bytes_ = 0;  // of both lanes, serialized; Parts of the first bulk message included
  std::string first_;        // the first bulk message, serialized when its turn comes
  size_t sent_ = 0;          // bytes of first_ that have left
  SendWindow window_;
  TransferProgress progress_;
};

// Joins what came in. After an error the stream is of no more use. Not thread-safe.
template <typename Wire>
class IncomingMessages {
 public:
  explicit IncomingMessages(size_t max_message_bytes = kMaxControlMessageBytes)
      : max_message_bytes_(max_message_bytes) {}

  // Limits a message that comes in Parts, with its state, from now on.
  void SetLimit(size_t max_message_bytes) { max_message_bytes_ = max_message_bytes; }
  // Takes one wire message, serialized; returns the message that it completes, if it does, with its
  // state. InvalidArgument: it is no such message, an empty Part, Parts or layers over the
  // limit, Parts within Parts, a layer that belongs to no message.
  // DataLoss: the bytes of Parts are damaged.
  absl::StatusOr<std::optional<Wire>> Add(const std::string& bytes);
  // Acknowledgements since the last call, for OutgoingMessages::Settle.
  PartNews TakeNews();
  // Bytes held of an incomplete message.
  int64_t held_bytes() const { return static_cast<int64_t>(joined_.size() + ahead_bytes_); }

 private:
  absl::StatusOr<std::optional<Wire>> AddPart(const proto::Part& part);
  absl::StatusOr<std::optional<Wire>> Complete(Wire message);

  size_t max_message_bytes_;
  std::string joined_;       // Parts so far; empty: in the middle of none
  proto::ModelState ahead_;  // layers whose message is still to come
  size_t ahead_bytes_ = 0;
  PartNews news_;
};

extern template class OutgoingMessages<proto::FromWorker>;
extern template class OutgoingMessages<proto::FromCentral>;
extern template class IncomingMessages<proto::FromWorker>;
extern template class IncomingMessages<proto::FromCentral>;

}  // namespace runnel
