#include "proto/transport/link/link_session.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/test_frames.h"

namespace runnel::link_session_test {
namespace {

constexpr FrameKind kActivation = FrameKind::kActivation;
constexpr FrameKind kLabels = FrameKind::kLabels;

// Keeps what is sent; closed on demand.
class FakeConnection final : public Connection {
 public:
  absl::Status Send(const Frame& frame) override {
    if (closed) return absl::UnavailableError("closed");
    sent.push_back(frame);
    return absl::OkStatus();
  }
  void Close() override { closed = true; }
  int64_t queued_bytes() const override { return 0; }

  bool closed = false;
  std::vector<Frame> sent;
};

Frame Ack(FrameKind kind, int64_t sequence, int generation = 0) {
  Frame frame;
  frame.header.kind = FrameKind::kAck;
  frame.header.acked_kind = kind;
  frame.header.generation = Generation(generation);
  frame.header.sequence = Sequence(sequence);
  return frame;
}

class LinkSessionTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeConnection> Connect() {
    auto connection = std::make_shared<FakeConnection>();
    session_.Connected(connection);
    return connection;
  }
  void Send(FrameKind kind, int64_t sequence, int generation = 0) {
    session_.Send(TestFrame(kind, sequence, 10, generation));
  }
  absl::Status Receive(FrameKind kind, int64_t sequence, int generation = 0) {
    return session_.Received(TestFrame(kind, sequence, 10, generation));
  }
  void Acknowledge(FrameKind kind, int64_t sequence, int generation = 0) {
    session_.Acknowledge(kind, Generation(generation), Sequence(sequence));
  }
  // (kind, sequence) of frames, acks with the kind that they acknowledge and negative.
  using Seen = std::vector<std::pair<FrameKind, int64_t>>;
  static Seen Of(const std::vector<Frame>& frames) {
    Seen seen;
    for (const Frame& frame : frames) {
      const bool ack = frame.header.kind == FrameKind::kAck;
      seen.emplace_back(ack ? frame.header.acked_kind : frame.header.kind,
                        ack ? -frame.header.sequence.value() : frame.header.sequence.value());
    }
    return seen;
  }

  std::vector<Frame> delivered_;
  LinkSession session_{[this](Frame frame) { delivered_.push_back(std::move(frame)); }};
};

TEST_F(LinkSessionTest, KeepsWhatIsSentBeforeThereIsAConnection) {
  Send(kActivation, 0);
  EXPECT_EQ(session_.counters().frames_sent, 0);
  const auto connection = Connect();
  EXPECT_EQ(Of(connection->sent), (Seen{{kActivation, 0}}));
  EXPECT_EQ(session_.counters().frames_sent, 1);
  EXPECT_EQ(session_.counters().frames_resent, 0);
  EXPECT_EQ(session_.counters().bytes_sent, 74);
}

TEST_F(LinkSessionTest, ResendsVerbatimInTheOrderOfSendingOverAllKinds) {
  const auto first = Connect();
  Send(kLabels, 3);
  Send(kActivation, 0);
  Send(kLabels, 4);
  Send(kActivation, 7);
  EXPECT_TRUE(session_.Received(Ack(kLabels, 3)).ok());
  EXPECT_EQ(session_.unacknowledged(kLabels), 1);
  session_.Disconnected();
  EXPECT_FALSE(session_.connected());
  Send(kActivation, 8);
  const auto second = Connect();
  EXPECT_EQ(Of(second->sent),
            (Seen{{kActivation, 0}, {kLabels, 4}, {kActivation, 7}, {kActivation, 8}}));
  for (const Frame& frame : second->sent) {
    EXPECT_TRUE(CheckPayload(frame.header, frame.payload.bytes()).ok());
  }
  EXPECT_EQ(second->sent[0].payload.bytes().data(), first->sent[1].payload.bytes().data());
  EXPECT_EQ(session_.counters().frames_sent, 5);
  EXPECT_EQ(session_.counters().frames_resent, 3);
  EXPECT_TRUE(session_.Received(Ack(kActivation, 8)).ok());
  EXPECT_EQ(session_.unacknowledged(kActivation), 0);
}

TEST_F(LinkSessionTest, AFrameThatAClosedConnectionRefusesGoesWithTheNext) {
  const auto first = Connect();
  first->closed = true;
  Send(kActivation, 0);
  EXPECT_EQ(session_.counters().frames_sent, 0);
  const auto second = Connect();
  EXPECT_EQ(Of(second->sent), (Seen{{kActivation, 0}}));
  EXPECT_EQ(session_.counters().frames_resent, 0);
}

TEST_F(LinkSessionTest, DropsRepetitionsAndTellsItsAcksAgain) {
  Connect();
  EXPECT_TRUE(Receive(kActivation, 0).ok());
  EXPECT_TRUE(Receive(kActivation, 1).ok());
  Acknowledge(kActivation, 0);
  // The ack of 0 is not told yet, and 1 is not consumed yet.
  const auto second = Connect();
  EXPECT_EQ(Of(second->sent), (Seen{{kActivation, 0}}));
  EXPECT_EQ(second->sent[0].header.kind, FrameKind::kAck);
  EXPECT_TRUE(Receive(kActivation, 0).ok());
  EXPECT_TRUE(Receive(kActivation, 1).ok());
  EXPECT_EQ(delivered_.size(), 2u);
  EXPECT_EQ(session_.counters().duplicates_dropped, 2);
  Acknowledge(kActivation, 1);
  Acknowledge(kActivation, 1);
  Acknowledge(kActivation, 0);
  EXPECT_EQ(second->sent.size(), 1u);
  const auto third = Connect();
  EXPECT_EQ(Of(third->sent), (Seen{{kActivation, -1}}));
}

TEST_F(LinkSessionTest, AcksGoAlongWithData) {
  const auto connection = Connect();
  EXPECT_TRUE(Receive(kActivation, 0).ok());
  EXPECT_TRUE(Receive(kActivation, 3).ok());
  EXPECT_TRUE(Receive(kActivation, 4).ok());
  EXPECT_TRUE(Receive(kActivation, 5).ok());
  Acknowledge(kActivation, 0);
  EXPECT_TRUE(connection->sent.empty());
  Send(FrameKind::kGradient, 0);
  EXPECT_EQ(Of(connection->sent), (Seen{{FrameKind::kGradient, 0}, {kActivation, 0}}));
  Send(FrameKind::kGradient, 1);
  EXPECT_EQ(connection->sent.size(), 3u);
  // Without data that would take them along, at most one waits.
  Acknowledge(kActivation, 3);
  Acknowledge(kActivation, 4);
  Acknowledge(kActivation, 5);
  EXPECT_EQ(Of(connection->sent), (Seen{{FrameKind::kGradient, 0},
                                        {kActivation, 0},
                                        {FrameKind::kGradient, 1},
                                        {kActivation, -3},
                                        {kActivation, -5}}));
}

TEST_F(LinkSessionTest, KindsThatNothingAnswersAreAcknowledgedAtOnce) {
  const auto connection = Connect();
  for (const FrameKind kind :
       {kLabels, FrameKind::kInput, FrameKind::kEvalInput, FrameKind::kEvalLabels,
        FrameKind::kEvalActivation, FrameKind::kReplica}) {
    EXPECT_TRUE(Receive(kind, 7).ok());
    Acknowledge(kind, 7);
    EXPECT_EQ(Of(connection->sent).back(), std::pair(kind, int64_t{-7}));
  }
}

TEST_F(LinkSessionTest, WhatIsOwedEndsWithItsGeneration) {
  const auto connection = Connect();
  EXPECT_TRUE(Receive(kActivation, 0).ok());
  Acknowledge(kActivation, 0);
  session_.StartGeneration(Generation(1));
  session_.Send(TestFrame(FrameKind::kGradient, 0, 10, 1));
  EXPECT_EQ(Of(connection->sent), (Seen{{FrameKind::kGradient, 0}}));
}

// Sequences go back to the last committed barrier: what was told before counts no longer.
TEST_F(LinkSessionTest, WhatWasToldEndsWithItsGeneration) {
  const auto connection = Connect();
  EXPECT_TRUE(Receive(kActivation, 20).ok());
  Acknowledge(kActivation, 20);
  session_.StartGeneration(Generation(1));
  EXPECT_TRUE(Receive(kActivation, 5, 1).ok());
  Acknowledge(kActivation, 5, 1);
  EXPECT_EQ(Of(connection->sent), (Seen{{kActivation, -20}, {kActivation, -5}}));
}

TEST_F(LinkSessionTest, KindsAreApart) {
  const auto connection = Connect();
  EXPECT_TRUE(Receive(kActivation, 5).ok());
  EXPECT_TRUE(Receive(kLabels, 2).ok());
  Acknowledge(kLabels, 2);
  Send(kActivation, 0);
  Send(kLabels, 9);
  EXPECT_TRUE(session_.Received(Ack(kLabels, 9)).ok());
  EXPECT_EQ(session_.unacknowledged(kActivation), 1);
  EXPECT_EQ(session_.unacknowledged(kLabels), 0);
  EXPECT_EQ(session_.unacknowledged(FrameKind::kGradient), 0);
}

TEST_F(LinkSessionTest, RefusesWhatCannotBe) {
  Connect();
  Send(kActivation, 4);
  EXPECT_TRUE(absl::IsInvalidArgument(session_.Received(Ack(kActivation, 5))));
  EXPECT_TRUE(absl::IsInvalidArgument(session_.Received(Ack(kActivation, 0, 1))));
  EXPECT_TRUE(absl::IsInvalidArgument(session_.Received(Ack(kLabels, 0))));
  EXPECT_TRUE(absl::IsInvalidArgument(session_.Received(Ack(FrameKind::kAck, 0))));
  EXPECT_TRUE(absl::IsInvalidArgument(session_.Received(Ack(FrameKind::kHello, 0))));
  EXPECT_TRUE(absl::IsInvalidArgument(Receive(FrameKind::kHello, 0)));
  EXPECT_EQ(session_.unacknowledged(kActivation), 1);
  EXPECT_TRUE(Receive(kActivation, 3).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Receive(kActivation, 3)));
  EXPECT_TRUE(absl::IsInvalidArgument(Receive(kActivation, 2)));
  EXPECT_TRUE(Receive(kActivation, 9).ok());
  EXPECT_EQ(delivered_.size(), 2u);
}

TEST_F(LinkSessionTest, AnAckOfWhatNoConnectionTookCannotBe) {
  Send(kActivation, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(session_.Received(Ack(kActivation, 0))));
  Connect();
  EXPECT_TRUE(session_.Received(Ack(kActivation, 0)).ok());
  EXPECT_TRUE(session_.Received(Ack(kActivation, 0)).ok());
}

TEST_F(LinkSessionTest, ANewGenerationForgetsTheOld) {
  Connect();
  Send(kActivation, 10);
  EXPECT_TRUE(Receive(kActivation, 20).ok());
  Acknowledge(kActivation, 20);
  session_.StartGeneration(Generation(2));
  EXPECT_EQ(session_.unacknowledged(kActivation), 0);
  EXPECT_TRUE(Receive(kActivation, 21).ok());
  EXPECT_TRUE(Receive(kActivation, 0, 1).ok());
  EXPECT_EQ(session_.counters().stale_dropped, 2);
  EXPECT_TRUE(session_.Received(Ack(kActivation, 10)).ok());
  Send(kActivation, 11);
  EXPECT_EQ(session_.counters().stale_dropped, 3);
  // Sequences go back to the last committed barrier.
  EXPECT_TRUE(Receive(kActivation, 5, 2).ok());
  EXPECT_EQ(delivered_.size(), 2u);
  Acknowledge(kActivation, 20);
  session_.StartGeneration(Generation(1));
  EXPECT_EQ(session_.generation(), Generation(2));
  const auto connection = Connect();
  EXPECT_TRUE(connection->sent.empty());
}

TEST_F(LinkSessionTest, FramesOfAGenerationThatHasNotStartedWait) {
  Connect();
  EXPECT_TRUE(Receive(kActivation, 0, 1).ok());
  EXPECT_TRUE(Receive(kLabels, 0, 2).ok());
  EXPECT_TRUE(Receive(kActivation, 1, 1).ok());
  EXPECT_TRUE(delivered_.empty());
  session_.StartGeneration(Generation(1));
  EXPECT_EQ(Of(delivered_), (Seen{{kActivation, 0}, {kActivation, 1}}));
  session_.StartGeneration(Generation(2));
  EXPECT_EQ(delivered_.size(), 3u);
}

TEST_F(LinkSessionTest, EarlyFramesComeAgainAfterAReconnect) {
  Connect();
  EXPECT_TRUE(Receive(kActivation, 0, 1).ok());
  Connect();
  EXPECT_TRUE(Receive(kActivation, 0, 1).ok());
  EXPECT_TRUE(Receive(kActivation, 1, 1).ok());
  session_.StartGeneration(Generation(1));
  EXPECT_EQ(Of(delivered_), (Seen{{kActivation, 0}, {kActivation, 1}}));
  EXPECT_EQ(session_.counters().duplicates_dropped, 0);
}

TEST_F(LinkSessionTest, EarlyFramesAreBounded) {
  Connect();
  for (size_t i = 0; i < LinkSession::kMaxEarlyFrames; ++i) {
    ASSERT_TRUE(Receive(kActivation, static_cast<int64_t>(i), 1).ok());
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Receive(kLabels, 0, 1)));
}

TEST(LinkSession, TheOwnerMayCallBackWhileItTakesAFrame) {
  auto connection = std::make_shared<FakeConnection>();
  std::vector<Frame> delivered;
  LinkSession* self = nullptr;
  LinkSession session([&](Frame frame) {
    self->Acknowledge(frame.header.kind, frame.header.generation, frame.header.sequence);
    self->Send(TestFrame(FrameKind::kGradient, frame.header.sequence.value(), 5,
                         frame.header.generation.value()));
    delivered.push_back(frame);
    if (delivered.size() == 1) self->StartGeneration(Generation(2));
  });
  self = &session;
  session.Connected(connection);
  EXPECT_TRUE(session.Received(TestFrame(kActivation, 0, 5, 1)).ok());
  EXPECT_TRUE(session.Received(TestFrame(kActivation, 1, 5, 1)).ok());
  EXPECT_TRUE(session.Received(TestFrame(kActivation, 0, 5, 2)).ok());
  session.StartGeneration(Generation(1));
  ASSERT_EQ(delivered.size(), 2u);
  EXPECT_EQ(delivered[1].header.generation, Generation(2));
  EXPECT_EQ(session.counters().stale_dropped, 1);
  EXPECT_EQ(session.unacknowledged(FrameKind::kGradient), 1);
}

}  // namespace
}  // namespace runnel::link_session_test
