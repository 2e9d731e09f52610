#include "proto/transport/control/send_window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace runnel {

void SendWindow::Sent(int64_t bytes, int64_t now_ns) {
  pieces_.push_back({bytes, now_ns});
  under_way_ += bytes;
}

absl::Status SendWindow::Arrived(int64_t bytes, int64_t now_ns) {
  if (bytes < 0 || bytes > under_way_) {
    return absl::InvalidArgumentError(
        absl::StrCat("parts_arrived.bytes: ", bytes, " where ", under_way_, " are on their way"));
  }
  under_way_ -= bytes;
  int64_t left = bytes;
  while (left > 0) {
    Piece& piece = pieces_.front();
    const int64_t took_ns = now_ns - piece.sent_ns;
    const int64_t arrived = std::min(left, piece.bytes);
    // Doubled in the time that a window of pieces takes, or taken back to half.
    if (took_ns < kShortNs) window_ = std::min(window_ + arrived, kMostBytes);
    if (took_ns > kLongNs) window_ = std::max(window_ - arrived / 2, kLeastBytes);
    piece.bytes -= arrived;
    left -= arrived;
    if (piece.bytes == 0) pieces_.pop_front();
  }
  return absl::OkStatus();
}

}  // namespace runnel
