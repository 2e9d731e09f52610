#pragma once

// What a worker's lanes do within a window that central asked for. Outside of one nothing is kept.

#include <cstdint>

#include "proto/base/figures/span.h"
#include "proto/transport/control/control.h"

namespace runnel {

// Call all methods on the loop's thread.
class SpanLog {
 public:
  // A window begins at this time; what was kept of another one is dropped.
  void Open(int64_t now_ns, const TraceRequest& request);
  // Keeps the span, if it overlaps the window and there is room.
  void Add(const Span& span);
  // A window was opened, and has come to its end.
  bool is_over(int64_t now_ns) const { return end_ns_ > begin_ns_ && now_ns >= end_ns_; }
  // The spans of the window, which is closed.
  TraceReport Close();

 private:
  int64_t begin_ns_ = 0;
  int64_t end_ns_ = 0;  // begin_ns_: no window is open
  TraceReport report_;
};

}  // namespace runnel
