#include "proto/transport/link/frame_assembler.h"

#include <sys/resource.h>

#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/transport/test_frames.h"

namespace runnel::frame_assembler_test {
namespace {

using Progress = FrameAssembler::Progress;
using Message = std::vector<std::byte>;

// A frame's messages with so many payload bytes each.
std::vector<Message> MessagesOf(const Frame& frame, size_t chunk) {
  std::vector<Message> messages;
  const auto header = EncodeHeader(frame.header);
  messages.emplace_back(header.begin(), header.end());
  absl::Span<const std::byte> left = frame.payload.bytes();
  while (!left.empty()) {
    const auto part = left.subspan(0, chunk);
    if (messages.size() > 1 || messages[0].size() > kFrameHeaderBytes) messages.emplace_back();
    messages.back().insert(messages.back().end(), part.begin(), part.end());
    left.remove_prefix(part.size());
  }
  return messages;
}

class FrameAssemblerTest : public ::testing::Test {
 protected:
  absl::StatusOr<Progress> Add(const Message& message, size_t piece = 1 << 30) {
    std::vector<absl::Span<const std::byte>> pieces;
    absl::Span<const std::byte> left = message;
    while (!left.empty()) {
      pieces.push_back(left.subspan(0, piece));
      left.remove_prefix(pieces.back().size());
    }
    return assembler_.Add(pieces);
  }

  BufferPool pool_;
  absl::Status answer_;
  int headers_ = 0;
  FrameAssembler assembler_{&pool_, [this](const FrameHeader&) {
                              ++headers_;
                              return answer_;
                            }};
};

TEST_F(FrameAssemblerTest, AnyChunksAnyPieces) {
  int64_t sequence = 0;
  for (const size_t bytes : {0, 1, 99, 100, 101, 1000}) {
    for (const size_t chunk : {1, 100, 5000}) {
      for (const size_t piece : {1, 7, 1 << 20}) {
        const Frame frame = TestFrame(FrameKind::kInput, sequence++, bytes);
        const std::vector<Message> messages = MessagesOf(frame, chunk);
        for (size_t i = 0; i < messages.size(); ++i) {
          const auto progress = Add(messages[i], piece);
          ASSERT_TRUE(progress.ok()) << progress.status();
          EXPECT_EQ(*progress, i + 1 == messages.size() ? Progress::kFrame : Progress::kPartial);
          EXPECT_EQ(assembler_.mid_frame(), i + 1 < messages.size());
        }
        EXPECT_EQ(WhatIsWrongWith(assembler_.TakeFrame()), "");
      }
    }
  }
  EXPECT_EQ(headers_, sequence);
  EXPECT_EQ(*Add({}), Progress::kGoodbye);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process
// Under a limit of less than the frame takes.
TEST_F(FrameAssemblerTest, NoMemoryForAFrameIsAStatus) {
  Frame frame = TestFrame(FrameKind::kInput, 0, 10);
  frame.header.payload_bytes = kMaxPayloadBytes;
  const Message message = MessagesOf(frame, 10).front();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit little = {kMaxPayloadBytes, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  const absl::Status status = Add(message).status();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(status, absl::ResourceExhaustedError("out of memory for a frame of 1073741824 bytes"));
}
#endif

TEST_F(FrameAssemblerTest, ARefusedHeaderTakesNoMemory) {
  answer_ = absl::OutOfRangeError("no");
  Frame frame = TestFrame(FrameKind::kInput, 0, 10);
  frame.header.payload_bytes = kMaxPayloadBytes;
  EXPECT_EQ(Add(MessagesOf(frame, 10)[0]).status(), answer_);
  EXPECT_EQ(pool_.blocks_made(), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(Add(MessagesOf(frame, 10)[0]).status()));
  EXPECT_EQ(headers_, 1);
}

TEST_F(FrameAssemblerTest, MessagesThatAreTooLong) {
  Message message = MessagesOf(TestFrame(FrameKind::kInput, 0, 10), 10)[0];
  message.push_back(std::byte{1});
  EXPECT_TRUE(absl::IsInvalidArgument(Add(message).status()));
  EXPECT_EQ(pool_.blocks_made(), 0);
}

TEST_F(FrameAssemblerTest, ALaterMessageThatIsTooLong) {
  std::vector<Message> messages = MessagesOf(TestFrame(FrameKind::kInput, 0, 10), 5);
  EXPECT_TRUE(Add(messages[0]).ok());
  messages[1].push_back(std::byte{1});
  EXPECT_TRUE(absl::IsInvalidArgument(Add(messages[1]).status()));
}

TEST_F(FrameAssemblerTest, AFirstMessageThatIsTooShort) {
  Message message = MessagesOf(TestFrame(FrameKind::kInput, 0, 10), 10)[0];
  message.resize(63);
  const absl::Status status = Add(message).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status) && absl::StrContains(status.message(), "short"));
}

TEST_F(FrameAssemblerTest, AnEndWithinAFrameIsDataLoss) {
  EXPECT_TRUE(Add(MessagesOf(TestFrame(FrameKind::kInput, 0, 10), 5)[0]).ok());
  EXPECT_TRUE(assembler_.mid_frame());
  EXPECT_TRUE(absl::IsDataLoss(Add({}).status()));
}

TEST_F(FrameAssemblerTest, AWrongByteIsDataLoss) {
  std::vector<Message> messages = MessagesOf(TestFrame(FrameKind::kInput, 0, 1000), 400);
  messages[1][17] ^= std::byte{4};
  EXPECT_TRUE(Add(messages[0]).ok());
  EXPECT_TRUE(Add(messages[1]).ok());
  EXPECT_TRUE(absl::IsDataLoss(Add(messages[2]).status()));
}

TEST_F(FrameAssemblerTest, NothingAfterTheGoodbye) {
  EXPECT_EQ(*Add({}), Progress::kGoodbye);
  EXPECT_TRUE(absl::IsInvalidArgument(Add({}).status()));
}

TEST_F(FrameAssemblerTest, ASteadyStreamAllocatesNothing) {
  for (int i = 0; i < 10; ++i) {
    for (const Message& message : MessagesOf(TestFrame(FrameKind::kInput, i, 5000), 1000)) {
      ASSERT_TRUE(Add(message).ok());
    }
    EXPECT_EQ(WhatIsWrongWith(assembler_.TakeFrame()), "");
  }
  EXPECT_EQ(pool_.blocks_made(), 1);
}

}  // namespace
}  // namespace runnel::frame_assembler_test
