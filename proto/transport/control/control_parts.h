#pragma once

// How one control message travels as one or several wire messages. Wire is proto::FromWorker or
// proto::FromCentral. A message of more than kWholeMessageBytes goes as Parts (control.proto).

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace runnel {

// Serialized bytes up to which a message goes whole; a Part carries up to as many.
inline constexpr size_t kWholeMessageBytes = size_t{1} << 20;
// No wire message is larger: what a receiver allows.
inline constexpr size_t kMaxWireMessageBytes = kWholeMessageBytes + 64;
// Largest message, serialized: what protobuf can read.
inline constexpr size_t kMaxControlMessageBytes = (size_t{1} << 31) - 1;
// What may wait in one stream's queue.
inline constexpr size_t kMaxQueuedControlBytes = size_t{1} << 32;

// Messages on their way out, in order. Not thread-safe.
template <typename Wire>
class OutgoingMessages {
 public:
  explicit OutgoingMessages(size_t max_queued_bytes = kMaxQueuedControlBytes)
      : max_queued_bytes_(max_queued_bytes) {}

  // ResourceExhausted: the message is over kMaxControlMessageBytes or the queue would be over its
  // limit. Internal: the message cannot be serialized.
  absl::Status Push(const Wire& message);
  // The next wire message, serialized; nothing if there is none.
  std::optional<std::string> Next();
  bool empty() const { return messages_.empty(); }
  void Clear();

 private:
  size_t max_queued_bytes_;
  std::deque<std::string> messages_;  // serialized, whole
  size_t queued_bytes_ = 0;           // of messages_, what has left as Parts included
  size_t sent_ = 0;                   // bytes of the first message that have left
};

// Joins what came in. After an error the stream is of no more use. Not thread-safe.
template <typename Wire>
class IncomingMessages {
 public:
  explicit IncomingMessages(size_t max_message_bytes = kMaxControlMessageBytes)
      : max_message_bytes_(max_message_bytes) {}

  // Takes one wire message, serialized; returns the message that it completes, if it does.
  // InvalidArgument: it is no such message, an empty Part, a Part over the limit, Parts within
  // Parts or another message in the middle of them.
  absl::StatusOr<std::optional<Wire>> Add(const std::string& bytes);

 private:
  absl::Status Append(const proto::Part& part);

  size_t max_message_bytes_;
  std::string joined_;  // Parts so far; empty: in the middle of none
};

extern template class OutgoingMessages<proto::FromWorker>;
extern template class OutgoingMessages<proto::FromCentral>;
extern template class IncomingMessages<proto::FromWorker>;
extern template class IncomingMessages<proto::FromCentral>;

}  // namespace runnel
