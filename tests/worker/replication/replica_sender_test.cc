#include "worker/replication/replica_sender.h"

#include "gtest/gtest.h"

namespace runnel::replica_sender_test {
namespace {

constexpr int64_t kMs = 1'000'000;
const ReplicaId kCommitted = {Generation(2), Sequence(31)};

std::shared_ptr<const SummedState> StateOf(int64_t bytes) {
  ModelState state;
  state.layers.push_back(
      {0, {{"w", DType::kInt8, Shape(), std::string(static_cast<size_t>(bytes), 'x')}}, {}});
  return std::make_shared<const SummedState>(state);
}

class ReplicaSenderTest : public ::testing::Test {
 protected:
  // How many leave now.
  int64_t Send(int64_t now_ns) {
    int64_t sent = 0;
    while (const std::optional<Frame> frame = sender_.Next(now_ns)) {
      EXPECT_EQ(frame->header.kind, FrameKind::kReplica);
      EXPECT_EQ(frame->header.sequence, Sequence(next_++));
      EXPECT_EQ(frame->header.generation, Generation(3));
      EXPECT_EQ(ReadPieceHead(*frame).value().barrier, sender_.head().barrier);
      EXPECT_LE(frame->payload.size(), static_cast<size_t>(kReplicaHeadBytes + kReplicaPieceBytes));
      ++sent;
    }
    return sent;
  }

  BufferPool pool_;
  ReplicaSender sender_{Generation(3), &pool_};
  int64_t next_ = 0;
};

TEST_F(ReplicaSenderTest, IsDoneWhenAllIsAcknowledged) {
  EXPECT_FALSE(sender_.Acknowledge(0, 0)) << "nothing was begun";
  sender_.Begin({Sequence(40), kCommitted}, StateOf(kReplicaPieceBytes * 3 / 2));
  EXPECT_EQ(Send(0), 2);
  EXPECT_FALSE(sender_.Acknowledge(1, kMs));
  EXPECT_TRUE(sender_.busy());
  EXPECT_TRUE(sender_.Acknowledge(0, kMs));
  EXPECT_FALSE(sender_.busy());
  // Frames go on counting: the link knows them by their numbers.
  sender_.Begin({Sequence(80), kCommitted}, StateOf(10));
  EXPECT_EQ(Send(2 * kMs), 1);
  EXPECT_TRUE(sender_.Acknowledge(0, 3 * kMs));
}

// What a tensor of the training waits for is what is on its way.
TEST_F(ReplicaSenderTest, FewAreOnTheirWayOnASlowLinkAndMoreOnAFastOne) {
  sender_.Begin({Sequence(0), kCommitted}, StateOf(kReplicaPieceBytes * 1000));
  EXPECT_EQ(Send(0), ReplicaSender::kFirstFrames);
  EXPECT_EQ(Send(0), 0);
  int64_t now_ns = 0;
  for (int i = 0; i < 3; ++i) {
    sender_.Acknowledge(0, now_ns += ReplicaSender::kLongNs + 1);
    EXPECT_EQ(Send(now_ns), 1) << "one at least";
  }
  for (int i = 0; i < 10; ++i) {
    sender_.Acknowledge(0, now_ns += kMs);
    Send(now_ns);
  }
  sender_.Acknowledge(0, now_ns += kMs);
  EXPECT_EQ(Send(now_ns), ReplicaSender::kMostFrames);
}

TEST_F(ReplicaSenderTest, EachPieceSaysWhatIsCommitted) {
  sender_.Begin({Sequence(40), kCommitted}, StateOf(kReplicaPieceBytes * 3 / 2));
  for (int i = 0; i < 2; ++i) {
    const PieceHead head = ReadPieceHead(*sender_.Next(0)).value();
    EXPECT_EQ(head, (PieceHead{Sequence(40), kCommitted}));
  }
}

TEST(PieceHead, RefusesWhatIsNone) {
  const auto read = [](const PieceHead& head, size_t bytes = kReplicaHeadBytes + 1) {
    std::vector<std::byte> piece(kReplicaHeadBytes + 1);
    WritePieceHead(head, absl::MakeSpan(piece));
    Frame frame;
    frame.header.generation = Generation(3);
    frame.payload = Payload::CopyOf(absl::MakeSpan(piece).first(bytes));
    return ReadPieceHead(frame);
  };
  EXPECT_TRUE(read({Sequence(4), {Generation(3), Sequence(2)}}).ok());
  EXPECT_TRUE(read({Sequence(4), {}}).ok()) << "nothing is committed yet";
  EXPECT_FALSE(read({Sequence(4), {}}, 0).ok());
  EXPECT_FALSE(read({Sequence(4), {}}, kReplicaHeadBytes).ok()) << "no byte of the state";
  EXPECT_FALSE(read({Sequence(-4), {}}).ok());
  EXPECT_FALSE(read({Sequence(4), {Generation(3), Sequence(-1)}}).ok());
  EXPECT_FALSE(read({Sequence(4), {Generation(4), Sequence(2)}}).ok()) << "of a later plan";
  EXPECT_EQ(read({Sequence(4), {}, 1, 3})->holder, 3);
  EXPECT_FALSE(read({Sequence(4), {}, -1, 3}).ok());
  EXPECT_FALSE(read({Sequence(4), {}, 1, kMaxLayers}).ok());
}

}  // namespace
}  // namespace runnel::replica_sender_test
