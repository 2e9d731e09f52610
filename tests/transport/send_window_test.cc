#include "proto/transport/control/send_window.h"

#include <algorithm>
#include <deque>

#include "gtest/gtest.h"

namespace runnel::send_window_test {
namespace {

constexpr int64_t kPiece = 16 << 10;
constexpr int64_t kMs = 1'000'000;

// Sends over a link of this rate and delay for so long, always as much as the window allows;
// returns the longest time that a piece needed, at the end.
int64_t LongestAfter(SendWindow& window, double bytes_per_s, int64_t delay_ns, int64_t seconds) {
  struct Piece {
    int64_t sent_ns;
    int64_t arrives_ns;
  };
  std::deque<Piece> pieces;
  int64_t longest = 0;
  int64_t link_free_ns = 0;
  for (int64_t now = 0; now < seconds * 1000 * kMs; now += kMs) {
    while (!pieces.empty() && pieces.front().arrives_ns <= now) {
      if (now > seconds * 800 * kMs) longest = std::max(longest, now - pieces.front().sent_ns);
      EXPECT_TRUE(window.Arrived(kPiece, now).ok());
      pieces.pop_front();
    }
    while (window.HasRoom(kPiece)) {
      window.Sent(kPiece, now);
      link_free_ns = std::max(link_free_ns, now) + static_cast<int64_t>(1e9 * kPiece / bytes_per_s);
      pieces.push_back({now, link_free_ns + delay_ns});
    }
  }
  return longest;
}

TEST(SendWindow, ASlowLinkIsNeverFilledForLong) {
  for (const double mbps : {0.25, 1.0, 4.0, 20.0}) {
    SendWindow window;
    const int64_t longest = LongestAfter(window, mbps * 1e6 / 8, 5 * kMs, 60);
    EXPECT_LT(longest, 1300 * kMs) << mbps;
    // And never idle: what is on its way covers the way there and back.
    EXPECT_GE(window.window(), SendWindow::kLeastBytes);
    EXPECT_FALSE(window.HasRoom(kPiece)) << mbps;
  }
}

TEST(SendWindow, AFastLinkWithALongWayIsFilled) {
  SendWindow window;
  LongestAfter(window, 12.5e6, 60 * kMs, 20);
  EXPECT_GT(window.window(), 12.5e6 * 0.06);
  EXPECT_LE(window.window(), SendWindow::kMostBytes);
}

TEST(SendWindow, WhatWasNotSentCannotArrive) {
  SendWindow window;
  EXPECT_EQ(window.Arrived(1, 0).code(), absl::StatusCode::kInvalidArgument);
  window.Sent(10, 0);
  EXPECT_EQ(window.Arrived(-1, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(window.Arrived(4, 0).ok());
  EXPECT_TRUE(window.Arrived(6, 0).ok());
  EXPECT_EQ(window.under_way(), 0);
}

TEST(SendWindow, APieceBeyondTheWindowLeavesAlone) {
  SendWindow window;
  EXPECT_TRUE(window.HasRoom(SendWindow::kMostBytes));
  window.Sent(SendWindow::kMostBytes, 0);
  EXPECT_FALSE(window.HasRoom(1));
  window.Open();
  EXPECT_TRUE(window.HasRoom(1));
}

}  // namespace
}  // namespace runnel::send_window_test
