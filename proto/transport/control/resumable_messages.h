#pragma once

// The messages of one end of a control stream, over all its connections: what waits to leave
// (control_parts.h), what may have to leave again and what has come (control_session.h).

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/status_macros.h"
#include "proto/transport/control/control_parts.h"
#include "proto/transport/control/control_session.h"

namespace runnel {

// Wire: of the messages that leave. Not thread-safe.
template <typename Wire>
class ResumableMessages {
 public:
  OutgoingMessages<Wire>& queue() { return queue_; }
  ControlSession& session() { return session_; }

  // The next wire message on this connection, serialized: an acknowledgement that is due, a
  // heartbeat behind the stream's first message, one to repeat, or a new one.
  std::optional<std::string> Next(int64_t now_ns) {
    if (const auto received = session_.DueAck(std::exchange(owes_answer_, false))) {
      Wire ack;
      ack.mutable_received()->set_messages(*received);
      return ack.SerializeAsString();
    }
    if (began_) {
      if (std::string heartbeat = queue_.TakeHeartbeat(); !heartbeat.empty()) return heartbeat;
    }
    if (std::optional<std::string> again = session_.NextAgain(); again.has_value()) return again;
    std::optional<std::string> next = queue_.Next(now_ns);
    if (!next.has_value()) return std::nullopt;
    began_ = true;
    session_.Keep(*next);
    return next;
  }
  // The peer's heartbeat is answered with what has come, so that it hears that we are there.
  void OweAnswer() { owes_answer_ = true; }
  // What came beside the peer's messages. Errors as ControlSession::Acknowledge and
  // OutgoingMessages::Settle.
  absl::Status Settle(const PartNews& news, int64_t now_ns) {
    for (int64_t i = 0; i < news.counted; ++i) session_.Take();
    if (news.received.has_value()) RUNNEL_RETURN_IF_ERROR(session_.Acknowledge(*news.received));
    return queue_.Settle(news, now_ns);
  }

 private:
  OutgoingMessages<Wire> queue_;
  ControlSession session_;
  bool began_ = false;        // the stream's first message has left
  bool owes_answer_ = false;  // to a heartbeat
};

// How far a control stream has come, at one end.
enum class StreamCourse : uint8_t {
  kOpen,
  kClosing,  // it ends when all is sent
  kOver,
  kTold,  // its owner has heard of the end
};

}  // namespace runnel
