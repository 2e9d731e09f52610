#pragma once

// When bytes leave and arrive on a shaped link: the arithmetic of LinkShaping, without a clock.

#include <cstdint>

#include "proto/transport/link/transport.h"

namespace runnel {

// A link that sends bytes one after the other at a fixed rate: a token bucket without depth, so
// that a large frame is never a burst followed by a pause. Not thread-safe.
class Pacer {
 public:
  struct Times {
    int64_t begin_ns = 0;   // the first byte leaves
    int64_t leave_ns = 0;   // the last byte has left
    int64_t arrive_ns = 0;  // the last byte is there
  };

  explicit Pacer(const LinkShaping& shaping);

  // Books `bytes` that are ready at `ready_ns`, behind earlier bookings. Times count from the clock
  // of `ready_ns` and never descend.
  Times Schedule(int64_t ready_ns, int64_t bytes);

  bool enabled() const { return ns_per_byte_ > 0 || delay_ns_ > 0; }
  // Largest size of one booking, so that bytes leave evenly: those of two milliseconds on the link,
  // within [4 KiB, `limit`].
  int64_t PieceBytes(int64_t limit) const;

 private:
  double ns_per_byte_ = 0;
  int64_t delay_ns_ = 0;
  // The link has been busy since `busy_since_ns_` with `busy_bytes_`, until `free_ns_`. Counting
  // from the start of the busy time keeps roundings from adding up.
  int64_t busy_since_ns_ = 0;
  int64_t busy_bytes_ = 0;
  int64_t free_ns_ = 0;
};

}  // namespace runnel
