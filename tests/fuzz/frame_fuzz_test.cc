// Frames that no honest end made, in any order (frame_fuzzer.cc has their bytes). Bounded and
// repeatable: the seed is printed, RUNNEL_FUZZ_SEED chooses another, RUNNEL_FUZZ_FACTOR so many times
// as many rounds.

#include <cstdio>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/transport/link/link_session.h"
#include "tests/fuzz/environment.h"

namespace runnel::frame_fuzz_test {
namespace {

// Draws in sequence from one stream.
class Draws {
 public:
  explicit Draws(uint64_t stream) : random_(Seed(), RandomPurpose::kTest, stream, 0) {
    std::printf("RUNNEL_FUZZ_SEED=%llu\n", static_cast<unsigned long long>(Seed()));
  }
  uint32_t Bits() { return random_.Bits(next_++); }
  uint32_t Below(uint32_t bound) { return random_.Below(next_++, bound); }
  // Mostly small, sometimes any.
  int64_t Number() {
    return Below(8) == 0 ? static_cast<int64_t>((uint64_t{Bits()} << 32) | Bits()) : Below(6);
  }

 private:
  static uint64_t Seed() { return fuzz::FromEnvironment("RUNNEL_FUZZ_SEED", 1); }
  CounterRandom random_;
  uint64_t next_ = 0;
};

uint64_t Rounds(uint64_t usual) { return usual * fuzz::FromEnvironment("RUNNEL_FUZZ_FACTOR", 1); }

class SilentConnection final : public Connection {
 public:
  absl::Status Send(const Frame&) override { return absl::OkStatus(); }
  void Close() override {}
  int64_t queued_bytes() const override { return 0; }
};

Frame RandomFrame(Draws& draws) {
  Frame frame;
  frame.header.kind = static_cast<FrameKind>(1 + draws.Below(kMaxFrameKind));
  frame.header.acked_kind = static_cast<FrameKind>(1 + draws.Below(kMaxFrameKind));
  frame.header.generation = Generation(static_cast<int32_t>(draws.Number() & 0x7FFFFFFF));
  frame.header.sequence = Sequence(draws.Number() & 0x7FFFFFFFFFFFFFFF);
  return frame;
}

TEST(FrameFuzz, SessionsDeliverInOrderOnceWhateverComes) {
  Draws draws(3);
  int64_t delivered = 0, refused = 0;
  const uint64_t rounds = Rounds(300);
  for (uint64_t round = 0; round < rounds; ++round) {
    LinkSession* self = nullptr;
    std::map<FrameKind, std::pair<Generation, Sequence>> last;
    LinkSession session([&](Frame frame) {
      const std::pair place(frame.header.generation, frame.header.sequence);
      ASSERT_EQ(frame.header.generation, self->generation());
      const auto [at, first] = last.emplace(frame.header.kind, place);
      ASSERT_TRUE(first || at->second < place) << "round " << round;
      at->second = place;
      ++delivered;
    });
    self = &session;
    session.Connected(std::make_shared<SilentConnection>());
    int64_t sequence = 0;
    for (int step = 0; step < 300; ++step) {
      const uint32_t what = draws.Below(40);
      if (what == 0) session.Connected(std::make_shared<SilentConnection>());
      if (what == 1) session.StartGeneration(session.generation().next());
      if (what == 2) session.Disconnected();
      if (what < 8) {
        Frame frame;
        frame.header.kind = FrameKind::kGradient;
        frame.header.generation = session.generation();
        frame.header.sequence = Sequence(sequence++);
        session.Send(std::move(frame));
      }
      const absl::Status status = session.Received(RandomFrame(draws));
      ASSERT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
      refused += !status.ok();
      ASSERT_LE(session.unacknowledged(FrameKind::kGradient), sequence);
    }
  }
  EXPECT_GT(delivered, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace runnel::frame_fuzz_test
