// Stages that replicate their states to each other over links of the loopback transport.

#include "worker/replication/stage_replication.h"

#include <functional>
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
  plan.links.resize(2);
  return plan;
}

constexpr auto kUpstream = StageReplication::kUpstream;
constexpr auto kDownstream = StageReplication::kDownstream;

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
      if (replicated_.size() == answers_ && !begins_more_()) loop_.Stop();
    };
    return std::make_unique<StageReplication>(std::move(options));
  }

  ModelState StateOf(int stage, uint64_t seed = 1) const {
    const StagePlan& range = plan_.stages[static_cast<size_t>(stage)];
    return Slice(InitialState(model_, seed).value(), range.first_layer, range.last_layer);
  }

  std::shared_ptr<const SummedState> CopyOf(int stage) const {
    return std::make_shared<const SummedState>(StateOf(stage));
  }

  // One piece that has all of the state.
  Frame Piece(const PieceHead& head, const ModelState& state, size_t left_out = 0) const {
    return Piece(head, SummedState(state), left_out);
  }
  Frame Piece(const PieceHead& head, const SummedState& copy, size_t left_out = 0) const {
    ReplicaWriter writer(std::make_shared<const SummedState>(copy));
    std::vector<std::byte> bytes(static_cast<size_t>(writer.left()) - left_out + kReplicaHeadBytes);
    WritePieceHead(head, absl::MakeSpan(bytes));
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
  size_t answers_ = 1;  // that a test waits for
  // Then: whether it goes on, with other answers to wait for.
  std::function<bool()> begins_more_ = [] { return false; };
};

// A link between a stage and the next one, over which copies go down.
class Line {
 public:
  Line(ThreadLoop* loop, StageReplication* above, StageReplication* below) : loop_(loop) {
    limits_.Set({{{FrameKind::kReplica, 0}, kReplicaHeadBytes + kReplicaPieceBytes}});
    const auto fail = [](const absl::Status& status) { FAIL() << status; };
    below_ = std::make_unique<LinkShell>(
        loop_, &limits_, LinkShell::Options{},
        [this, below](Frame frame) {
          EXPECT_TRUE(below->Arrived(kUpstream, frame).ok());
          below_->session().Acknowledge(frame.header.kind, kGeneration, frame.header.sequence);
        },
        fail);
    EXPECT_TRUE(acceptor_.Listen(transport_.get(), "127.0.0.1:0").ok());
    acceptor_.Expect({"t", "", ""}, {});
    LinkShell::Options options;
    options.transport = transport_.get();
    options.target = {acceptor_.address(), "", "t", "g"};
    options.role = "link";
    options.on_received = [above] { above->Pump(kDownstream); };
    above_ = std::make_unique<LinkShell>(
        loop_, &limits_, options, [](Frame) {}, fail);
    for (LinkShell* link : {above_.get(), below_.get()})
      link->session().StartGeneration(kGeneration);
    above->SetLink(kDownstream, above_.get());
    above_->Start();
  }

 private:
  ThreadLoop* loop_;
  FrameLimits limits_;
  std::unique_ptr<Transport> transport_ = MakeLoopbackTransport();
  std::unique_ptr<LinkShell> above_, below_;
  LinkAcceptor acceptor_{loop_, &limits_,
                         [this](const std::string&, std::shared_ptr<LoopConnection> connection) {
                           connection->connection()->Send(MakeHello({"g", "link"})).IgnoreError();
                           below_->Attach(std::move(connection));
                         }};
};

TEST_F(StageReplicationTest, ACopyCrossesTheLink) {
  const auto sender = Stage(1), receiver = Stage(2);
  const Line line(&loop_, sender.get(), receiver.get());
  const ReplicaId id = {kGeneration, Sequence(40)};
  ASSERT_TRUE(sender->Begin({id, {2}}, CopyOf(1), 17).ok());
  EXPECT_EQ(sender->Begin({id, {2}}, CopyOf(1), 17).code(), absl::StatusCode::kFailedPrecondition);
  loop_.Run();
  ASSERT_EQ(replicated_.size(), 1u);
  EXPECT_EQ(replicated_[0].id, id);
  EXPECT_EQ(replicated_[0].stall_ns, 17);
  EXPECT_GT(replicated_[0].bytes, 0);
  EXPECT_FALSE(replicated_[0].kept_of.has_value());
  EXPECT_TRUE(stores_[1].CopiesAt(id).LayersOf({0, 5}).value() == StateOf(1));
  EXPECT_TRUE(stores_[2].CopiesAt(id).LayersOf({0, 5}).value() == StateOf(1));
}

// The stage between passes it on, beside its own copy, and keeps it too.
TEST_F(StageReplicationTest, ACopyPassesAStageToItsHolder) {
  const auto first = Stage(0), middle = Stage(1), last = Stage(2);
  const Line upper(&loop_, first.get(), middle.get());
  const Line lower(&loop_, middle.get(), last.get());
  const ReplicaId id = {kGeneration, Sequence(40)};
  answers_ = 3;
  ASSERT_TRUE(first->Begin({id, {2}}, CopyOf(0), 0).ok());
  ASSERT_TRUE(middle->Begin({id, {2}}, CopyOf(1), 0).ok());
  loop_.Run();
  EXPECT_EQ(std::count_if(replicated_.begin(), replicated_.end(),
                          [](const Replicated& one) { return one.kept_of == 0; }),
            1);
  ModelState both = StateOf(0);
  Merge(StateOf(1), both);
  for (const int stage : {1, 2})
    EXPECT_TRUE(stores_[stage].CopiesAt(id).LayersOf({0, 5}).value() == both) << stage;
}

// What an encoder keeps of samples goes whole once; then what has changed since the barrier that is
// committed, also from the stage between to the holder.
TEST_F(StageReplicationTest, OfEncodersWhatHasChangedSinceACommit) {
  const auto first = Stage(0), middle = Stage(1), last = Stage(2);
  const Line upper(&loop_, first.get(), middle.get());
  const Line lower(&loop_, middle.get(), last.get());
  ModelState state = StateOf(0);
  state.encoders = {{1, Direction::kForward, "aqsgd:2", std::string(500'000, 'a')}};
  const int64_t barriers[] = {4, 8, 12, 16};
  std::vector<int64_t> bytes;
  const auto begin = [&] {
    const ReplicaId id = {kGeneration, Sequence(barriers[bytes.size()])};
    state.encoders[0].state[static_cast<size_t>(10'000 * id.sequence.value())] = 'b';
    replicated_.clear();
    answers_ = 2;
    ASSERT_TRUE(first->Begin({id, {2}}, std::make_shared<const SummedState>(state), 0).ok());
  };
  begins_more_ = [&] {
    const ReplicaId id = {kGeneration, Sequence(barriers[bytes.size()])};
    bytes.push_back(std::max(replicated_[0].bytes, replicated_[1].bytes));
    for (const int stage : {0, 1, 2})
      EXPECT_TRUE(stores_[stage].CopiesAt(id).LayersOf({0, 1}).value() == state) << stage;
    // Barrier 12 never is: others' copies of it are missing. The next one is of 8 still.
    for (ReplicaStore& store : stores_)
      if (id.sequence != Sequence(12)) store.Commit(id);
    if (bytes.size() == std::size(barriers)) return false;
    begin();
    return true;
  };
  begin();
  loop_.Run();
  ASSERT_EQ(bytes.size(), 4u);
  EXPECT_GT(bytes[0], 500'000);
  EXPECT_LT(bytes[1], bytes[0] - 490'000);
  EXPECT_EQ(bytes[2], bytes[1]);
  EXPECT_EQ(bytes[3], bytes[0]) << "whole: the neighbour's last copy is not the committed one";
}

TEST_F(StageReplicationTest, AStageThatIsAloneHasNoHolder) {
  plan_.stages.resize(1);
  ASSERT_TRUE(Stage(0)->Begin({{kGeneration, Sequence(4)}, {}}, CopyOf(0), 3).ok());
  ASSERT_EQ(replicated_.size(), 1u);
  EXPECT_EQ(replicated_[0].bytes, 0);
}

TEST_F(StageReplicationTest, WhatCannotBeIsRefused) {
  const auto middle = Stage(1);
  const ReplicaId id = {kGeneration, Sequence(4)};
  for (const int holder : {-1, 1, 3})
    EXPECT_THAT(middle->Begin({id, {holder}}, CopyOf(1), 0).message(), HasSubstr("has no copies"));
  const std::pair<int, int> ways[] = {{2, 0}, {1, 2}, {0, 0}, {0, 3}, {3, 1}};
  for (const auto& [source, holder] : ways) {
    EXPECT_THAT(
        middle->Arrived(kUpstream, Piece({id.sequence, {}, source, holder}, StateOf(0))).message(),
        HasSubstr("does not pass stage 1"))
        << source << " to " << holder;
  }
  ModelState bad = StateOf(0);
  bad.encoders = {{5000, Direction::kForward, "mbq:2", ""}};
  EXPECT_THAT(middle->Arrived(kUpstream, Piece({Sequence(4), {}, 0, 1}, bad)).message(),
              HasSubstr("boundary 5000"));
  // Pieces of two barriers make no state.
  const auto other = Stage(1);
  ASSERT_TRUE(other->Arrived(kUpstream, Piece({Sequence(4), {}, 0, 1}, StateOf(0), 9)).ok());
  EXPECT_THAT(other->Arrived(kUpstream, Piece({Sequence(8), {}, 0, 1}, StateOf(0))).message(),
              HasSubstr("of barrier 8 of stage 0 within one of 4"));
  for (const int64_t barrier : {4, 8})
    EXPECT_TRUE(stores_[1]
                    .CopiesAt({kGeneration, Sequence(barrier)})
                    .LayersOf({0, 5})
                    .value()
                    .layers.empty());
}

// A copy whose bytes are not those that its stage has summed is no copy, wherever they changed.
TEST_F(StageReplicationTest, SumsOfTheSourceComeWithTheCopy) {
  const auto middle = Stage(1);
  SummedState damaged(StateOf(0));
  damaged.state.layers[0].tensors[0].bytes[2] ^= 1;
  ASSERT_TRUE(middle->Arrived(kUpstream, Piece({Sequence(4), {}, 0, 1}, damaged)).ok());
  const ReplicaCopies copies = stores_[1].CopiesAt({kGeneration, Sequence(4)});
  EXPECT_TRUE(copies.LayersOf({1, 1}).ok());
  EXPECT_EQ(copies.LayersOf({0, 1}).status().code(), absl::StatusCode::kDataLoss);
}

// The stage before and the one behind it, each at its own pace.
TEST_F(StageReplicationTest, KeepsCopiesFromBothSides) {
  const auto middle = Stage(1);
  const ReplicaId id = {kGeneration, Sequence(4)};
  ASSERT_TRUE(middle->Arrived(kUpstream, Piece({id.sequence, {}, 0, 1}, StateOf(0))).ok());
  ASSERT_TRUE(middle->Arrived(kDownstream, Piece({id.sequence, {}, 2, 1}, StateOf(2))).ok());
  const ModelState kept = stores_[1].CopiesAt(id).LayersOf({0, 5}).value();
  ASSERT_EQ(kept.layers.size(), 4u);
  EXPECT_EQ(kept.layers[2].layer, 4);
}

// Central committed barrier 4, and the neighbour's copy of barrier 8 is here before that news: until
// barrier 8 is committed too, a recovery goes on from 4.
TEST_F(StageReplicationTest, ACopyThatOvertakesACommitDropsNothing) {
  const auto middle = Stage(1);
  const ReplicaId committed = {kGeneration, Sequence(4)};
  ASSERT_TRUE(middle->Arrived(kUpstream, Piece({Sequence(4), {}, 0, 1}, StateOf(0))).ok());
  ASSERT_TRUE(middle->Arrived(kUpstream, Piece({Sequence(8), committed, 0, 1}, StateOf(0))).ok());
  EXPECT_EQ(stores_[1].committed(), committed);
  EXPECT_TRUE(stores_[1].CopiesAt(committed).LayersOf({0, 1}).value() == StateOf(0));
}

}  // namespace
}  // namespace runnel::stage_replication_test
