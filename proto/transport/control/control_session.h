#pragma once

// Makes a control stream outlive its connections, as LinkSession does for a data link: each sent
// message is kept until the peer acknowledges it, and leaves again, verbatim, on the next
// connection. Messages need no number on the wire: a connection keeps order, so both ends count
// them, and a new connection begins with each end's count. A state machine: no thread, no clock;
// one owner calls it.
// || Memory: the messages on their way. Of states that is a SendWindow at most; other messages are
// acknowledged after kAckEvery.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace runnel {

class ControlSession {
 public:
  // The peer is told of so many messages together.
  static constexpr int64_t kAckEvery = 16;

  // ---- what leaves

  // The next message to repeat on this connection, in order; none: new messages may leave.
  std::optional<std::string> NextAgain();
  // A new message leaves. Not while there is something to leave again.
  void Keep(std::string message);
  // The peer has so many of our messages. InvalidArgument: more than have left, or fewer than it
  // had before.
  absl::Status Acknowledge(int64_t count);

  // ---- what comes

  // A message of the peer's has arrived.
  void Take() { ++received_; }
  // The count of the peer's messages to acknowledge, if it is due. is_asked: it is due in any case
  // (the answer to a heartbeat).
  std::optional<int64_t> DueAck(bool is_asked = false);
  // Number of messages that have arrived over all connections.
  int64_t received() const { return received_; }

  // ---- connections

  // There is a new one, and the peer has so many of our messages. Errors as Acknowledge; then the
  // session cannot go on.
  absl::Status Connect(int64_t count);
  // Whether nothing is to be repeated.
  bool sent_all() const { return next_ == kept_.size(); }
  size_t kept_messages() const { return kept_.size(); }

 private:
  std::deque<std::string> kept_;  // those that the peer may not have, in order
  size_t next_ = 0;               // in kept_: that leave again on this connection
  int64_t acknowledged_ = 0;      // messages of ours before kept_
  int64_t received_ = 0;
  int64_t told_ = 0;  // acknowledged part of received_
};

}  // namespace runnel
