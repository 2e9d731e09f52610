#include "proto/transport/control/control_parts.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/figures/class_counts.h"
#include "proto/transport/link/frame.h"

namespace runnel::control_parts_test {
namespace {

using ::testing::HasSubstr;

using Outgoing = OutgoingMessages<proto::FromWorker>;
using Incoming = IncomingMessages<proto::FromWorker>;
using Wire = proto::FromWorker;

Wire Failed(const std::string& reason) {
  Wire message;
  message.mutable_stage_failed()->set_reason(reason);
  return message;
}

// A message of exactly `bytes` when serialized.
Wire OfSize(size_t bytes) {
  size_t reason = bytes - 16;
  while (Failed(std::string(reason, 'r')).ByteSizeLong() < bytes) ++reason;
  return Failed(std::string(reason, 'r'));
}

// A state of this many layers, each with so many bytes.
Wire SnapshotOf(int64_t sequence, int layers, size_t bytes) {
  Wire message;
  message.mutable_snapshot()->set_sequence(sequence);
  message.mutable_snapshot()->mutable_state();
  for (int layer = 0; layer < layers; ++layer) {
    proto::LayerState& state = *message.mutable_snapshot()->mutable_state()->add_layers();
    state.set_layer(layer);
    state.add_tensors()->set_data(std::string(bytes, static_cast<char>('a' + layer)));
  }
  return message;
}

uint32_t CrcOf(const std::string& bytes) {
  return Crc32(0, absl::MakeSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
}

// whole: of which it is the last part; empty: of itself.
std::string Part(const std::string& data, bool last, const std::string& whole = "") {
  Wire message;
  message.mutable_part()->set_data(data);
  message.mutable_part()->set_last(last);
  if (last) message.mutable_part()->set_crc(CrcOf(whole.empty() ? data : whole));
  return message.SerializeAsString();
}

std::string PartOf(const Wire& message) { return Part(message.SerializeAsString(), true); }

// Two ends of a stream; what is sent arrives at once, what is read is acknowledged if asked for.
struct Pipe {
  Outgoing out;
  Incoming in;
  std::vector<std::string> arrived;  // messages in order, serialized
  int wires = 0;

  // Moves one wire message; false: none may leave.
  bool Move() {
    const std::optional<std::string> wire = out.Next(0);
    if (!wire.has_value()) return false;
    ++wires;
    EXPECT_LE(wire->size(), kMaxWireMessageBytes);
    const absl::StatusOr<std::optional<Wire>> message = in.Add(*wire);
    EXPECT_TRUE(message.ok()) << message.status();
    if (message.ok() && message->has_value()) arrived.push_back((*message)->SerializeAsString());
    return true;
  }
  void Acknowledge() {
    const PartNews news = in.TakeNews();
    EXPECT_TRUE(out.Settle({0, news.read}, 0).ok());
  }
  void MoveAll() {
    while (Move()) Acknowledge();
  }
};

TEST(ControlParts, MessagesOfAllSizesArrive) {
  const size_t whole = kWholeMessageBytes;
  for (const size_t size : {size_t{40}, whole - 1, whole, whole + 1, 3 * whole}) {
    Pipe pipe;
    ASSERT_TRUE(pipe.out.Push(OfSize(size)).ok());
    pipe.MoveAll();
    EXPECT_TRUE(pipe.arrived == (std::vector<std::string>{OfSize(size).SerializeAsString()}));
    EXPECT_EQ(pipe.wires, size <= whole ? 1 : static_cast<int>((size - 1) / kPartBytes) + 1);
    EXPECT_TRUE(pipe.out.empty());
  }
}

TEST(ControlParts, AStateArrivesWithItsMessage) {
  Pipe pipe;
  for (const int layers : {3, 0, 1}) {
    pipe.arrived.clear();
    ASSERT_TRUE(pipe.out.Push(SnapshotOf(7, layers, 50'000)).ok());
    pipe.MoveAll();
    EXPECT_TRUE(pipe.arrived ==
                (std::vector<std::string>{SnapshotOf(7, layers, 50'000).SerializeAsString()}));
  }
}

// A state may take minutes: whoever fails or reaches a barrier meanwhile says so at once.
TEST(ControlParts, SmallMessagesOvertakeAState) {
  Pipe pipe;
  ASSERT_TRUE(pipe.out.Push(SnapshotOf(1, 2, 400'000)).ok());
  ASSERT_TRUE(pipe.out.Push(SnapshotOf(2, 0, 0)).ok());
  EXPECT_TRUE(pipe.Move());
  ASSERT_TRUE(pipe.out.Push(Failed("a")).ok());
  ASSERT_TRUE(pipe.out.Push(Failed("b")).ok());
  pipe.MoveAll();
  EXPECT_TRUE(pipe.arrived == (std::vector<std::string>{
                                  Failed("a").SerializeAsString(), Failed("b").SerializeAsString(),
                                  SnapshotOf(1, 2, 400'000).SerializeAsString(),
                                  SnapshotOf(2, 0, 0).SerializeAsString()}));
}

TEST(ControlParts, PartsWaitUntilThoseBeforeHaveArrived) {
  Pipe pipe;
  ASSERT_TRUE(pipe.out.Push(SnapshotOf(1, 1, 1'000'000)).ok());
  while (pipe.Move()) {
  }
  EXPECT_EQ(pipe.wires, SendWindow::kFirstBytes / static_cast<int64_t>(kPartBytes));
  EXPECT_FALSE(pipe.out.empty());
  EXPECT_EQ(pipe.out.progress().arrived_bytes, 0);
  pipe.Acknowledge();
  EXPECT_EQ(pipe.out.progress().arrived_bytes, SendWindow::kFirstBytes);
  EXPECT_GT(pipe.out.progress().total_bytes, 1'000'000);
  EXPECT_TRUE(pipe.Move());
  // The peer says no more: what is left goes as it is.
  pipe.out.SendWithoutWaiting();
  while (pipe.Move()) {
  }
  EXPECT_EQ(pipe.arrived.size(), 1u);
  EXPECT_EQ(pipe.out.Settle({0, 2'000'000}, 0).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ControlParts, WhatHasBeenReadIsAcknowledged) {
  Pipe there;
  ASSERT_TRUE(there.out.Push(SnapshotOf(1, 1, 10)).ok());
  ASSERT_TRUE(there.Move());
  const PartNews news = there.in.TakeNews();
  EXPECT_GT(news.read, 0);
  EXPECT_EQ(there.in.TakeNews().read, 0) << "only once";
  Pipe back;
  ASSERT_TRUE(back.out.Settle(news, 0).ok());
  ASSERT_TRUE(back.Move());
  EXPECT_TRUE(back.arrived.empty()) << "nobody above hears of it";
  EXPECT_EQ(back.in.TakeNews().arrived, news.read);
}

TEST(ControlParts, WhatIsTakenBackIsForgotten) {
  Pipe pipe;
  ASSERT_TRUE(pipe.out.Push(SnapshotOf(1, 2, 20'000)).ok());
  for (int wire = 0; wire < 3; ++wire) EXPECT_TRUE(pipe.Move());  // a layer and a half
  pipe.out.DropBulk();
  EXPECT_EQ(pipe.out.progress().total_bytes, 0);
  ASSERT_TRUE(pipe.out.Push(SnapshotOf(2, 1, 10)).ok());
  pipe.MoveAll();
  EXPECT_TRUE(pipe.arrived == (std::vector<std::string>{SnapshotOf(2, 1, 10).SerializeAsString()}));
}

TEST(ControlParts, QueueHasALimit) {
  Outgoing outgoing(/*max_queued_bytes=*/100);
  EXPECT_TRUE(outgoing.Push(OfSize(60)).ok());
  EXPECT_EQ(outgoing.Push(OfSize(41)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(outgoing.Push(SnapshotOf(1, 1, 41)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(outgoing.Push(OfSize(40)).ok());
  EXPECT_EQ(outgoing.Push(OfSize(20)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(outgoing.Next(0).has_value());
  EXPECT_TRUE(outgoing.Push(OfSize(60)).ok());
  outgoing.Clear();
  EXPECT_FALSE(outgoing.Next(0).has_value());
  EXPECT_TRUE(outgoing.Push(OfSize(100)).ok());
}

TEST(ControlParts, JoinedMessageHasALimit) {
  Incoming incoming(/*max_message_bytes=*/10);
  EXPECT_TRUE(incoming.Add(Part("12345678", false)).ok());
  EXPECT_TRUE(incoming.Add(Part("90", false)).ok());
  const absl::Status status = incoming.Add(Part("1", true)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("part.data: 1 bytes after 10 are over 10"));
  // Layers that wait for their message count as well.
  Wire layer;
  layer.mutable_layer()->set_layer(1);
  Incoming layers(/*max_message_bytes=*/10);
  EXPECT_TRUE(layers.Add(PartOf(layer)).ok());
  EXPECT_TRUE(layers.Add(PartOf(layer)).ok());
  EXPECT_THAT(std::string(layers.Add(PartOf(layer)).status().message()), HasSubstr("are over 10"));
}

TEST(ControlParts, WireMessageHasALimit) {
  const std::string large = OfSize(kMaxWireMessageBytes + 1).SerializeAsString();
  EXPECT_THAT(std::string(Incoming().Add(large).status().message()), HasSubstr("are over"));
}

TEST(ControlParts, BadSequencesAreRefused) {
  const auto error = [](const std::vector<std::string>& wires) {
    Incoming incoming;
    for (const std::string& wire : wires) {
      const absl::Status status = incoming.Add(wire).status();
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      return std::string(status.message());
    }
    return std::string("none");
  };
  const std::string whole = Failed("r").SerializeAsString();
  Wire layer, dropped;
  layer.mutable_layer()->set_layer(1);
  dropped.mutable_parts_dropped();
  EXPECT_EQ(
      error({whole, Part(whole.substr(0, 2), false), whole, Part(whole.substr(2), true, whole)}),
      "none");
  EXPECT_THAT(error({"\xFF\xFF\xFF"}), HasSubstr("cannot be parsed"));
  EXPECT_THAT(error({Part("", false)}), HasSubstr("part.data: is empty"));
  EXPECT_THAT(error({Part("\xFF\xFF", true)}), HasSubstr("its parts cannot be parsed"));
  EXPECT_THAT(error({Part(Part("x", false), true)}), HasSubstr("is made of parts"));
  EXPECT_THAT(error({PartOf(dropped)}), HasSubstr("is made of parts"));
  EXPECT_THAT(error({layer.SerializeAsString()}), HasSubstr("outside of parts"));
  EXPECT_THAT(error({PartOf(layer), PartOf(Failed("r"))}), HasSubstr("belongs to no message"));
  EXPECT_THAT(error({PartOf(layer), PartOf(SnapshotOf(1, 1, 1))}), HasSubstr("belongs to no"));
}

TEST(ControlParts, DamagedPartsAreNotBelieved) {
  const std::string whole = SnapshotOf(1, 0, 0).SerializeAsString();
  Wire message;
  message.mutable_part()->set_data(whole);
  message.mutable_part()->set_last(true);
  message.mutable_part()->set_crc(CrcOf(whole) ^ 1);
  Incoming incoming;
  const absl::Status status = incoming.Add(message.SerializeAsString()).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

// Of a peer that was not welcomed yet.
TEST(ControlParts, WhereNoStateIsAllowedNoPartIsKept) {
  Incoming incoming;
  incoming.SetLimit(0);
  EXPECT_TRUE(absl::IsInvalidArgument(incoming.Add(Part("x", false)).status()));
  EXPECT_EQ(incoming.held_bytes(), 0);
}

TEST(ControlParts, EachKindHasALargestSize) {
  Wire telemetry;
  telemetry.mutable_telemetry();
  EXPECT_TRUE(CheckWireSize(telemetry, 4096).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckWireSize(telemetry, 4097)));
  EXPECT_TRUE(CheckWireSize(Failed("r"), 8192).ok());
  EXPECT_FALSE(CheckWireSize(Failed("r"), 8193).ok());
  // An evaluation's matrix of as many classes as have one.
  Wire evaluation;
  proto::ClassCounts& counts = *evaluation.mutable_evaluation_done()->mutable_counts();
  for (int64_t i = 0; i < kMostConfusedClasses * kMostConfusedClasses; ++i)
    counts.add_confusion(int64_t{1} << 55);
  EXPECT_TRUE(CheckWireSize(evaluation, evaluation.ByteSizeLong()).ok());
  Wire ready;
  ready.mutable_stage_ready();
  EXPECT_FALSE(CheckWireSize(ready, 1025).ok());
}

}  // namespace
}  // namespace runnel::control_parts_test
