#include "proto/transport/link/pacer.h"

#include "gtest/gtest.h"

namespace runnel::pacer_test {
namespace {

LinkShaping Shaping(double megabits_per_second, double delay_ms) {
  LinkShaping shaping;
  shaping.megabits_per_second = megabits_per_second;
  shaping.delay_ms = delay_ms;
  return shaping;
}

TEST(Pacer, UnshapedLeavesAtOnce) {
  Pacer pacer(LinkShaping{});
  EXPECT_FALSE(pacer.enabled());
  EXPECT_EQ(pacer.Schedule(17, 1 << 30).leave_ns, 17);
  EXPECT_EQ(pacer.Schedule(18, 1).arrive_ns, 18);
  EXPECT_EQ(pacer.PieceBytes(12345), 12345);
}

TEST(Pacer, RateAndDelay) {
  Pacer pacer(Shaping(8, 2.5));  // 1 us a byte
  const Pacer::Times first = pacer.Schedule(1000, 100);
  EXPECT_EQ(first.leave_ns, 1000 + 100'000);
  EXPECT_EQ(first.arrive_ns, first.leave_ns + 2'500'000);
  // Ready while the link is busy: behind.
  EXPECT_EQ(pacer.Schedule(2000, 50).leave_ns, 1000 + 150'000);
  // After a pause nothing is saved up.
  EXPECT_EQ(pacer.Schedule(5'000'000, 10).leave_ns, 5'010'000);
  // No bytes: with what was booked last.
  EXPECT_EQ(pacer.Schedule(5'000'001, 0).leave_ns, 5'010'000);
}

TEST(Pacer, DelayAlone) {
  Pacer pacer(Shaping(0, 3));
  EXPECT_TRUE(pacer.enabled());
  EXPECT_EQ(pacer.Schedule(10, 1 << 20).leave_ns, 10);
  EXPECT_EQ(pacer.Schedule(20, 5).arrive_ns, 3'000'020);
}

// 4096 KB at 50 Mbps in pieces: as long as the wire needs, evenly, however it is cut.
TEST(Pacer, PiecesTakeAsLongAsTheWhole) {
  for (const double rate : {1.0, 7.3, 50.0, 333.0, 1000.0}) {
    Pacer pacer(Shaping(rate, 0));
    const int64_t piece = pacer.PieceBytes(512 << 10);
    EXPECT_GE(piece, 4096);
    EXPECT_LE(piece, 512 << 10);
    const int64_t total = 4096 * 1024;
    const double ns_per_byte = 8000.0 / rate;
    int64_t left = total, last = 0;
    while (left > 0) {
      const int64_t bytes = std::min(left, piece);
      const int64_t leave = pacer.Schedule(0, bytes).leave_ns;
      EXPECT_NEAR(static_cast<double>(leave - last), ns_per_byte * static_cast<double>(bytes), 1.0);
      last = leave;
      left -= bytes;
    }
    EXPECT_NEAR(static_cast<double>(last), ns_per_byte * total, 1.0) << rate;
  }
}

TEST(Pacer, TimesNeverDescend) {
  Pacer pacer(Shaping(100, 1));
  int64_t last = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    // Clocks of several threads may be read a little out of order.
    const int64_t ready = i * 700 - (i % 3) * 900;
    const Pacer::Times times = pacer.Schedule(std::max<int64_t>(0, ready), i % 17);
    EXPECT_GE(times.arrive_ns, last);
    last = times.arrive_ns;
  }
}

}  // namespace
}  // namespace runnel::pacer_test
