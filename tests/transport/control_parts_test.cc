#include "proto/transport/control/control_parts.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

using Outgoing = OutgoingMessages<proto::FromWorker>;
using Incoming = IncomingMessages<proto::FromWorker>;

proto::FromWorker Failed(const std::string& reason) {
  proto::FromWorker message;
  message.mutable_stage_failed()->set_reason(reason);
  return message;
}

// A message of exactly `bytes` when serialized.
proto::FromWorker OfSize(size_t bytes) {
  size_t reason = bytes - 16;
  while (Failed(std::string(reason, 'r')).ByteSizeLong() < bytes) ++reason;
  return Failed(std::string(reason, 'r'));
}

std::string Part(const std::string& data, bool last) {
  proto::FromWorker message;
  message.mutable_part()->set_data(data);
  message.mutable_part()->set_last(last);
  return message.SerializeAsString();
}

TEST(ControlParts, MessagesOfAllSizesArriveInOrder) {
  const size_t whole = kWholeMessageBytes;
  const size_t sizes[] = {40, whole - 1, whole, whole + 1, 2 * whole, 3 * whole - 1, 41};
  const size_t wires[] = {1, 1, 1, 2, 2, 3, 1};
  Outgoing outgoing;
  for (const size_t size : sizes) ASSERT_TRUE(outgoing.Push(OfSize(size)).ok());
  Incoming incoming;
  for (size_t i = 0; i < std::size(sizes); ++i) {
    std::optional<proto::FromWorker> message;
    size_t count = 0;
    while (!message.has_value()) {
      const std::optional<std::string> wire = outgoing.Next();
      ASSERT_TRUE(wire.has_value());
      EXPECT_LE(wire->size(), kMaxWireMessageBytes);
      absl::StatusOr<std::optional<proto::FromWorker>> added = incoming.Add(*wire);
      ASSERT_TRUE(added.ok()) << added.status();
      message = *std::move(added);
      ++count;
    }
    EXPECT_EQ(message->ByteSizeLong(), sizes[i]);
    EXPECT_EQ(message->SerializeAsString(), OfSize(sizes[i]).SerializeAsString());
    EXPECT_EQ(count, wires[i]);
  }
  EXPECT_TRUE(outgoing.empty());
  EXPECT_FALSE(outgoing.Next().has_value());
}

TEST(ControlParts, QueueHasALimit) {
  Outgoing outgoing(/*max_queued_bytes=*/100);
  EXPECT_TRUE(outgoing.Push(OfSize(60)).ok());
  EXPECT_EQ(outgoing.Push(OfSize(41)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(outgoing.Push(OfSize(40)).ok());
  EXPECT_EQ(outgoing.Push(OfSize(20)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(outgoing.Next().has_value());
  EXPECT_TRUE(outgoing.Push(OfSize(60)).ok());
  outgoing.Clear();
  EXPECT_FALSE(outgoing.Next().has_value());
  EXPECT_TRUE(outgoing.Push(OfSize(100)).ok());
}

TEST(ControlParts, JoinedMessageHasALimit) {
  Incoming incoming(/*max_message_bytes=*/10);
  EXPECT_TRUE(incoming.Add(Part("12345678", false)).ok());
  EXPECT_TRUE(incoming.Add(Part("90", false)).ok());
  const absl::Status status = incoming.Add(Part("1", true)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("part.data: 1 bytes after 10 are over 10"));
}

TEST(ControlParts, WireMessageHasALimit) {
  Incoming incoming;
  EXPECT_TRUE(incoming.Add(Part(std::string(kWholeMessageBytes, 'x'), false)).ok());
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
  EXPECT_EQ(error({whole, Part(whole.substr(0, 2), false), Part(whole.substr(2), true), whole}),
            "none");
  EXPECT_THAT(error({"\xFF\xFF\xFF"}), HasSubstr("cannot be parsed"));
  EXPECT_THAT(error({Part("", false)}), HasSubstr("part.data: is empty"));
  EXPECT_THAT(error({Part("x", false), whole}), HasSubstr("in the middle of parts"));
  EXPECT_THAT(error({Part("\xFF\xFF", true)}), HasSubstr("its parts cannot be parsed"));
  EXPECT_THAT(error({Part(Part("x", false), true)}), HasSubstr("is made of parts"));
}

}  // namespace
}  // namespace runnel
