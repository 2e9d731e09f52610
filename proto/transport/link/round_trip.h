#pragma once

// Measures a link's round trip with pings: probe frames of a few bytes that the peer answers at
// once. Acknowledgements cannot measure it: they wait until a frame is consumed, then for a frame
// that goes back. A ping that met tensors on its way waited behind them, so the smallest of several
// pings counts.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "proto/base/ids.h"
#include "proto/transport/link/frame.h"

namespace runnel {

// A state machine: no clock. Not thread-safe.
class RoundTripMeter {
 public:
  // The time is the smallest of so many pings: at two a second, of the last eight seconds.
  static constexpr size_t kWindow = 16;
  // After this time an answer counts as lost with its connection.
  static constexpr int64_t kAnswerDeadlineNs = 10'000'000'000;

  // Pings of the connection before get no answer.
  void Connected() { sent_ns_.reset(); }
  // The number of the ping to send now, if one is due; it counts as sent. queued_bytes: of frames
  // that wait to be sent.
  std::optional<Sequence> Due(int64_t now_ns, int64_t queued_bytes);
  // The answer to a ping came in. Of any other than the last: no effect.
  void Answered(Sequence ping, int64_t now_ns);

  // 0: not measured.
  int64_t smallest_ns() const;

 private:
  Sequence last_;                   // ping
  std::optional<int64_t> sent_ns_;  // when the last ping was sent; none: it is answered
  std::deque<int64_t> window_;
};

// The frames of a ping: a probe with a number above 0, and the report with the same number.
Frame MakePing(Sequence ping);
bool IsPing(const FrameHeader& header);

}  // namespace runnel
