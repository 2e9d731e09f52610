// Stages that replicate their states to each other over links of the loopback transport.

#include "worker/replication/stage_replication.h"

#include <optional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/support/in_process/loopback.h"

namespace runnel::stage_replication_test {
namespace {

using ::testing::HasSubstr;

const Generation kGeneration(2);

// Of LeNet's layers 0..5.
Plan ThreeStages() {
  Plan plan;
  plan.generation = kGeneration;
  plan.stages = {{{Seat{DeviceId(0)}}, 0, 1, 1},
                 {{Seat{DeviceId(1)}}, 2, 3, 1},
                 {{Seat{DeviceId(2)}}, 4, 5, 1}};
  return plan;
}

class StageReplicationTest : public ::testing::Test {
 protected:
  std::unique_ptr<StageReplication> Stage(int stage) {
    StageReplicationOptions options;
    options.plan = plan_;
    options.stage = stage;
    options.model = model_;
    options.batch_size = 4;
    options.loop = &loop_;
    options.pool = &pool_;
    options.store = &stores_[stage];
    options.on_replicated = [this](const Replicated& replicated) {
      replicated_.push_back(replicated);
      loop_.Stop();
    };
    return std::make_unique<StageReplication>(std::move(options));
  }

  ModelState StateOf(int stage, uint64_t seed = 1) const {
    const StagePlan& range = plan_.stages[static_cast<size_t>(stage)];
    return Slice(InitialState(model_, seed).value(), range.first_layer, range.last_layer);
  }

  // One piece that has all of the state.
  Frame Piece(Sequence barrier, const ModelState& state, size_t left_out = 0,
              const ReplicaId& committed = {}) const {
    ReplicaWriter writer(std::make_shared<const ModelState>(state));
    std::vector<std::byte> bytes(static_cast<size_t>(writer.left()) - left_out + kReplicaHeadBytes);
    WritePieceHead({barrier, committed}, absl::MakeSpan(bytes));
    writer.Read(absl::MakeSpan(bytes).subspan(kReplicaHeadBytes));
    Frame frame;
    frame.header.kind = FrameKind::kReplica;
    frame.header.generation = kGeneration;
    frame.payload = Payload::CopyOf(bytes);
    return frame;
  }

  MonotonicClock clock_;
  ThreadLoop loop_{&clock_};
  BufferPool pool_;
  ModelSpec model_ = MakeModel("lenet").value();
  Plan plan_ = ThreeStages();
  ReplicaStore stores_[3];
  std::vector<Replicated> replicated_;
};

TEST_F(StageReplicationTest, WhoSendsToWhom) {
  const auto first = Stage(0), middle = Stage(1), last = Stage(2);
  EXPECT_TRUE(first->sends_down() && middle->sends_down() && last->sends_up());
  EXPECT_FALSE(first->sends_up() || middle->sends_up() || last->sends_down());
  EXPECT_FALSE(first->ReceivesFrom(ReplicaSource::kUpstream));
  EXPECT_FALSE(first->ReceivesFrom(ReplicaSource::kDownstream)) << "not of the middle one";
  EXPECT_TRUE(middle->ReceivesFrom(ReplicaSource::kUpstream));
  EXPECT_TRUE(middle->ReceivesFrom(ReplicaSource::kDownstream)) << "of the last one";
  EXPECT_TRUE(last->ReceivesFrom(ReplicaSource::kUpstream));
}

TEST_F(StageReplicationTest, ACopyCrossesTheLink) {
  const std::unique_ptr<Transport> transport = MakeLoopbackTransport();
  const auto sender = Stage(1), receiver = Stage(2);
  FrameLimits limits;
  limits.Set({{{FrameKind::kReplica, 0}, kReplicaHeadBytes + kReplicaPieceBytes}});
  const auto fail = [](const absl::Status& status) { FAIL() << status; };

  std::unique_ptr<LinkShell> above, below;
  below = std::make_unique<LinkShell>(
      &loop_, &limits, LinkShell::Options{},
      [&](Frame frame) {
        EXPECT_TRUE(receiver->Arrived(ReplicaSource::kUpstream, frame).ok());
        below->session().Acknowledge(frame.header.kind, kGeneration, frame.header.sequence);
      },
      fail);
  LinkAcceptor acceptor(&loop_, &limits,
                        [&](const std::string&, std::shared_ptr<LoopConnection> connection) {
                          connection->connection()->Send(MakeHello({"g", "link"})).IgnoreError();
                          below->Attach(std::move(connection));
                        });
  ASSERT_TRUE(acceptor.Listen(transport.get(), "127.0.0.1:0").ok());
  acceptor.Expect({"t", "", ""}, {});
  LinkShell::Options options;
  options.transport = transport.get();
  options.target = {acceptor.address(), "", "t", "g"};
  options.role = "link";
  options.on_received = [&] { sender->Pump(); };
  above = std::make_unique<LinkShell>(
      &loop_, &limits, options, [](Frame) {}, fail);
  for (LinkShell* link : {above.get(), below.get()}) link->session().StartGeneration(kGeneration);
  sender->SetLink(above.get());
  above->Start();

  const ReplicaId id = {kGeneration, Sequence(40)};
  ASSERT_TRUE(sender->Begin(id, StateOf(1), 17).ok());
  EXPECT_EQ(sender->Begin(id, StateOf(1), 17).code(), absl::StatusCode::kFailedPrecondition);
  loop_.Run();
  ASSERT_EQ(replicated_.size(), 1u);
  EXPECT_EQ(replicated_[0].id, id);
  EXPECT_EQ(replicated_[0].stall_ns, 17);
  EXPECT_GT(replicated_[0].bytes, 0);
  EXPECT_TRUE(stores_[1].LayersOf(id, {0, 5}).value() == StateOf(1));
  EXPECT_TRUE(stores_[2].LayersOf(id, {0, 5}).value() == StateOf(1));
}

TEST_F(StageReplicationTest, WhatCannotBeIsRefused) {
  const auto middle = Stage(1), first = Stage(0);
  EXPECT_THAT(first->Arrived(ReplicaSource::kDownstream, Piece(Sequence(4), StateOf(1))).message(),
              HasSubstr("of no neighbour's"));
  ModelState bad = StateOf(0);
  bad.encoders = {{5000, Direction::kForward, "mbq:2", ""}};
  EXPECT_THAT(middle->Arrived(ReplicaSource::kUpstream, Piece(Sequence(4), bad)).message(),
              HasSubstr("boundary 5000"));
  // Pieces of two barriers make no state.
  const auto other = Stage(1);
  ASSERT_TRUE(other->Arrived(ReplicaSource::kUpstream, Piece(Sequence(4), StateOf(0), 9)).ok());
  EXPECT_THAT(other->Arrived(ReplicaSource::kUpstream, Piece(Sequence(8), StateOf(0))).message(),
              HasSubstr("of barrier 8 within one of 4"));
  for (const int64_t barrier : {4, 8})
    EXPECT_TRUE(
        stores_[1].LayersOf({kGeneration, Sequence(barrier)}, {0, 5}).value().layers.empty());
}

// The stage before and the last one, each at its own pace.
TEST_F(StageReplicationTest, TheLastButOneKeepsBothNeighbours) {
  const auto middle = Stage(1);
  const ReplicaId id = {kGeneration, Sequence(4)};
  ASSERT_TRUE(middle->Arrived(ReplicaSource::kUpstream, Piece(id.sequence, StateOf(0))).ok());
  ASSERT_TRUE(middle->Arrived(ReplicaSource::kDownstream, Piece(id.sequence, StateOf(2))).ok());
  const ModelState kept = stores_[1].LayersOf(id, {0, 5}).value();
  ASSERT_EQ(kept.layers.size(), 4u);
  EXPECT_EQ(kept.layers[2].layer, 4);
}

// Central committed barrier 4, and the neighbour's copy of barrier 8 is here before that news: until
// barrier 8 is committed too, a recovery goes on from 4.
TEST_F(StageReplicationTest, ACopyThatOvertakesACommitDropsNothing) {
  const auto middle = Stage(1);
  const ReplicaId committed = {kGeneration, Sequence(4)};
  ASSERT_TRUE(middle->Arrived(ReplicaSource::kUpstream, Piece(Sequence(4), StateOf(0))).ok());
  ASSERT_TRUE(
      middle->Arrived(ReplicaSource::kUpstream, Piece(Sequence(8), StateOf(0), 0, committed)).ok());
  EXPECT_EQ(stores_[1].committed(), committed);
  EXPECT_TRUE(stores_[1].LayersOf(committed, {0, 1}).value() == StateOf(0));
}

}  // namespace
}  // namespace runnel::stage_replication_test
