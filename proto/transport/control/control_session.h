#pragma once

// What makes a control stream outlive its connections, as LinkSession does for a data link: each
// message that leaves is kept until the peer says that it has it, and leaves again, verbatim, on
// the next connection. Messages need no number on the wire: a connection keeps order, so both ends
// count them, and a new connection begins with what each end has. A state machine: no thread, no
// clock; one owner calls it.
//
// Memory: what is on its way. Of states that is a SendWindow at most, and of what has arrived the
// sender hears after kAckEvery messages.

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

  // What has to leave again on this connection, in order; nothing: new messages may leave.
  std::optional<std::string> NextAgain();
  // A new message leaves. Not while there is something to leave again.
  void Keep(std::string message);
  // The peer has so many of our messages. InvalidArgument: more than have left, or fewer than it
  // had before.
  absl::Status Acknowledge(int64_t count);

  // ---- what comes

  // One message of the peer's has come.
  void Take() { ++received_; }
  // What to tell the peer, if it is time to: how many of its messages have come. is_asked: it is,
  // whatever has come (the answer to a heartbeat).
  std::optional<int64_t> DueAck(bool is_asked = false);
  // So many have come over all connections.
  int64_t received() const { return received_; }

  // ---- connections

  // There is a new one, and the peer has so many of our messages. Errors as Acknowledge; then the
  // session cannot go on.
  absl::Status Connect(int64_t count);
  // Nothing is to be sent again.
  bool sent_all() const { return next_ == kept_.size(); }
  size_t kept_messages() const { return kept_.size(); }

 private:
  std::deque<std::string> kept_;  // those that the peer may not have, in order
  size_t next_ = 0;               // in kept_: that leave again on this connection
  int64_t acknowledged_ = 0;      // messages of ours before kept_
  int64_t received_ = 0;
  int64_t told_ = 0;  // of received_
};

}  // namespace runnel
