// What a peer may send: headers, streams of messages and frames that no honest end made. Bounded
// and repeatable: the seed is printed, RUNNEL_FUZZ_SEED chooses another, RUNNEL_FUZZ_FACTOR so
// many times as many rounds.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/transport/link/frame_assembler.h"
#include "proto/transport/link/link_session.h"

namespace runnel::frame_fuzz_test {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  uint64_t value = otherwise;
  if (text != nullptr && !absl::SimpleAtoi(text, &value)) std::abort();
  return value;
}

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
  static uint64_t Seed() { return FromEnvironment("RUNNEL_FUZZ_SEED", 1); }
  CounterRandom random_;
  uint64_t next_ = 0;
};

uint64_t Rounds(uint64_t usual) { return usual * FromEnvironment("RUNNEL_FUZZ_FACTOR", 1); }

using HeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

void FixCrc(HeaderBytes& bytes) {
  const uint32_t crc = Crc32(0, absl::MakeConstSpan(bytes).first(60));
  for (size_t i = 0; i < 4; ++i) bytes[60 + i] = static_cast<std::byte>(crc >> (8 * i));
}

// A header to try: noise, or one of ours with some bytes changed; mostly with a CRC that fits.
HeaderBytes RandomHeader(Draws& draws) {
  FrameHeader header;
  header.kind = static_cast<FrameKind>(1 + draws.Below(kMaxFrameKind));
  header.payload_bytes = draws.Below(5000);
  HeaderBytes bytes = EncodeHeader(header);
  if (draws.Below(8) == 0) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(draws.Bits());
  }
  for (uint32_t changes = draws.Below(4); changes > 0; --changes) {
    bytes[draws.Below(kFrameHeaderBytes)] = static_cast<std::byte>(draws.Bits());
  }
  if (draws.Below(4) != 0) FixCrc(bytes);
  return bytes;
}

TEST(FrameFuzz, HeadersAreRefusedOrReadBackTheSame) {
  Draws draws(1);
  int accepted = 0;
  const uint64_t rounds = Rounds(200000);
  for (uint64_t round = 0; round < rounds; ++round) {
    const HeaderBytes bytes = RandomHeader(draws);
    const auto size = draws.Below(50) == 0 ? draws.Below(65) : kFrameHeaderBytes;
    const absl::StatusOr<FrameHeader> header =
        DecodeHeader(absl::MakeConstSpan(bytes).first(static_cast<size_t>(size)));
    if (!header.ok()) {
      ASSERT_TRUE(absl::IsInvalidArgument(header.status()) || absl::IsDataLoss(header.status()))
          << header.status();
      continue;
    }
    ++accepted;
    ASSERT_EQ(EncodeHeader(*header), bytes) << "round " << round;
    ASSERT_LE(header->payload_bytes, kMaxPayloadBytes);
    ASSERT_GE(header->sequence, Sequence(0));
  }
  EXPECT_GT(accepted, 0);
}

// Messages of a stream that is mostly right: real frames, cut at random, sometimes damaged.
std::vector<std::vector<std::byte>> RandomStream(Draws& draws) {
  std::vector<std::vector<std::byte>> messages;
  for (uint32_t frames = draws.Below(5); frames > 0; --frames) {
    std::vector<std::byte> payload(draws.Below(3000));
    for (std::byte& byte : payload) byte = static_cast<std::byte>(draws.Bits());
    Frame frame;
    frame.payload = Payload::CopyOf(payload);
    SealFrame(frame);
    const HeaderBytes header =
        draws.Below(6) == 0 ? RandomHeader(draws) : EncodeHeader(frame.header);
    messages.emplace_back(header.begin(), header.end());
    for (const std::byte byte : payload) {
      if (draws.Below(500) == 0) messages.emplace_back();
      messages.back().push_back(byte);
    }
  }
  if (draws.Below(2) == 0) messages.emplace_back();
  if (!messages.empty() && draws.Below(3) == 0) {
    std::vector<std::byte>& message = messages[draws.Below(static_cast<uint32_t>(messages.size()))];
    if (draws.Below(2) == 0) {
      message.resize(message.size() + draws.Below(3));
    } else if (!message.empty()) {
      message[draws.Below(static_cast<uint32_t>(message.size()))] ^= std::byte{1};
    }
  }
  return messages;
}

TEST(FrameFuzz, StreamsGiveWholeFramesOrOneError) {
  Draws draws(2);
  constexpr uint64_t kLimit = 3000;
  int64_t frames = 0, errors = 0;
  const uint64_t rounds = Rounds(3000);
  for (uint64_t round = 0; round < rounds; ++round) {
    BufferPool pool;
    FrameAssembler assembler(&pool, [&](const FrameHeader& header) {
      return header.payload_bytes <= kLimit ? absl::OkStatus() : absl::OutOfRangeError("limit");
    });
    bool failed = false;
    for (const std::vector<std::byte>& message : RandomStream(draws)) {
      const size_t cut = message.empty() ? 0 : draws.Below(static_cast<uint32_t>(message.size()));
      const absl::Span<const std::byte> pieces[] = {absl::MakeConstSpan(message).first(cut),
                                                    absl::MakeConstSpan(message).subspan(cut)};
      const auto progress = assembler.Add(pieces);
      ASSERT_FALSE(failed && progress.ok()) << "round " << round;
      failed = !progress.ok();
      errors += failed;
      if (failed || *progress != FrameAssembler::Progress::kFrame) continue;
      const Frame frame = assembler.TakeFrame();
      ASSERT_TRUE(CheckPayload(frame.header, frame.payload.bytes()).ok()) << "round " << round;
      ASSERT_LE(frame.payload.size(), kLimit);
      ++frames;
    }
  }
  EXPECT_GT(frames, 100);
  EXPECT_GT(errors, 100);
}

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
