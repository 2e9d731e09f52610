#pragma once

// Bounds the part of a large message that is on its way: about as much as the link carries in half
// a second. Bytes in the system's buffers cannot be overtaken, and on a slow link megabytes of them
// would hold up every other message of the stream, and the pings that show that the peer lives. A
// state machine: no clock, one owner calls it.

#include <cstdint>
#include <deque>

#include "absl/status/status.h"

namespace runnel {

class SendWindow {
 public:
  static constexpr int64_t kFirstBytes = int64_t{64} << 10;
  static constexpr int64_t kLeastBytes = int64_t{32} << 10;
  static constexpr int64_t kMostBytes = int64_t{8} << 20;
  // A piece that arrives within the first time lets the window grow, one that needs longer than the
  // second lets it shrink.
  static constexpr int64_t kShortNs = 250'000'000;
  static constexpr int64_t kLongNs = 1'000'000'000;

  // Whether a piece of so many bytes may leave; the first one always may.
  bool HasRoom(int64_t bytes) const {
    return is_open_ || under_way_ == 0 || under_way_ + bytes <= window_;
  }
  void Sent(int64_t bytes, int64_t now_ns);
  // The peer has read so many more bytes. InvalidArgument: more than were on their way.
  absl::Status Arrived(int64_t bytes, int64_t now_ns);
  // The peer will tell no more: nothing waits from now on.
  void Open() { is_open_ = true; }

  int64_t under_way() const { return under_way_; }
  int64_t window() const { return window_; }

 private:
  struct Piece {
    int64_t bytes;
    int64_t sent_ns;
  };

  std::deque<Piece> pieces_;  // on their way, in order
  int64_t under_way_ = 0;
  int64_t window_ = kFirstBytes;
  bool is_open_ = false;
};

}  // namespace runnel
