#include "proto/transport/link/frame.h"

#include <cstring>
#include <functional>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace runnel::frame_test {
namespace {

using Bytes64 = std::array<std::byte, kFrameHeaderBytes>;

FrameHeader Header() {
  FrameHeader header;
  header.kind = FrameKind::kEvalActivation;
  header.acked_kind = FrameKind::kGradient;
  header.generation = Generation(0x01020304);
  header.samples = 0xA0B0C0D0;
  header.sequence = Sequence(0x1122334455667788);
  header.payload_bytes = 0x12345678;
  header.payload_crc = 0xCAFEBABE;
  return header;
}

TEST(Crc32, IsTheOneOfEthernetAndContinues) {
  const char text[] = "123456789";
  const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text), 9);
  EXPECT_EQ(Crc32(0, bytes), 0xCBF43926u);
  EXPECT_EQ(Crc32(Crc32(0, bytes.first(4)), bytes.subspan(4)), 0xCBF43926u);
  EXPECT_EQ(Crc32(7, {}), 7u);
}

TEST(FrameHeader, IsReadAsItWasWritten) {
  const absl::StatusOr<FrameHeader> read = DecodeHeader(EncodeHeader(Header()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Header());
  EXPECT_EQ(*DecodeHeader(EncodeHeader(FrameHeader())), FrameHeader());
}

// The wire's bytes, written down by hand from frame.h.
TEST(FrameHeader, HasTheLayoutOfTheContract) {
  const Bytes64 bytes = EncodeHeader(Header());
  const uint8_t expected[36] = {
      'R',  'N',  'L',  '1',  2,    8,    4,    0,     // magic, version, kind, acked_kind, zero
      0x04, 0x03, 0x02, 0x01,                          // generation
      0xD0, 0xC0, 0xB0, 0xA0,                          // samples
      0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  // sequence
      0x78, 0x56, 0x34, 0x12, 0,    0,    0,    0,     // payload_bytes
      0xBE, 0xBA, 0xFE, 0xCA};                         // payload CRC
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof(expected)), 0);
  for (size_t i = 36; i < 60; ++i) EXPECT_EQ(bytes[i], std::byte{}) << i;
  const uint32_t crc = Crc32(0, absl::MakeConstSpan(bytes).first(60));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(bytes[60 + i], static_cast<std::byte>(crc >> (8 * i)));
}

// `change`, then a CRC that fits again.
absl::Status Changed(const std::function<void(Bytes64&)>& change, bool fix_crc = true) {
  Bytes64 bytes = EncodeHeader(Header());
  change(bytes);
  if (fix_crc) {
    const uint32_t crc = Crc32(0, absl::MakeConstSpan(bytes).first(60));
    for (size_t i = 0; i < 4; ++i) bytes[60 + i] = static_cast<std::byte>(crc >> (8 * i));
  }
  return DecodeHeader(bytes).status();
}

void ExpectNames(const absl::Status& status, const char* field) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), field)) << status;
}

TEST(FrameHeader, BadFieldsAreNamed) {
  const auto set = [](size_t at, int value) {
    return [=](Bytes64& bytes) { bytes[at] = static_cast<std::byte>(value); };
  };
  EXPECT_TRUE(Changed([](Bytes64&) {}).ok());
  ExpectNames(Changed(set(0, 'X')), "magic");
  ExpectNames(Changed(set(4, 1)), "version");
  ExpectNames(Changed(set(5, 0)), "kind");
  ExpectNames(Changed(set(5, kMaxFrameKind + 1)), "kind");
  ExpectNames(Changed(set(6, 0)), "acked_kind");
  ExpectNames(Changed(set(6, 200)), "acked_kind");
  ExpectNames(Changed(set(11, 0x80)), "generation");
  ExpectNames(Changed(set(23, 0x80)), "sequence");
  ExpectNames(Changed(set(28, 1)), "payload_bytes");
  ExpectNames(Changed(set(31, 0xFF)), "payload_bytes");
  ExpectNames(Changed(set(5, static_cast<int>(FrameKind::kAck))), "payload_bytes");
  ExpectNames(Changed(set(7, 1)), "reserved");
  for (size_t at = 36; at < 60; ++at) ExpectNames(Changed(set(at, 1)), "reserved");
  const absl::Status damaged = Changed(set(60, 0), false);
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_TRUE(absl::StrContains(damaged.message(), "CRC")) << damaged;
}

TEST(FrameHeader, EveryFlippedBitIsSeen) {
  for (size_t bit = 0; bit < 8 * kFrameHeaderBytes; ++bit) {
    Bytes64 bytes = EncodeHeader(Header());
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_TRUE(absl::IsDataLoss(DecodeHeader(bytes).status())) << bit;
  }
}

TEST(FrameHeader, NeedsItsSizeAndTheLargestPayloadPasses) {
  const Bytes64 bytes = EncodeHeader(Header());
  ExpectNames(DecodeHeader(absl::MakeConstSpan(bytes).first(63)).status(), "size");
  ExpectNames(DecodeHeader({}).status(), "size");
  FrameHeader header = Header();
  header.payload_bytes = kMaxPayloadBytes;
  EXPECT_TRUE(DecodeHeader(EncodeHeader(header)).ok());
  header.payload_bytes = kMaxPayloadBytes + 1;
  ExpectNames(DecodeHeader(EncodeHeader(header)).status(), "payload_bytes");
}

TEST(Frame, SealedPayloadsCheck) {
  const std::byte bytes[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  Frame frame;
  frame.payload = Payload::CopyOf(bytes);
  SealFrame(frame);
  EXPECT_EQ(frame.header.payload_bytes, 3u);
  EXPECT_TRUE(CheckPayload(frame.header, bytes).ok());
  EXPECT_TRUE(absl::IsDataLoss(CheckPayload(frame.header, absl::MakeConstSpan(bytes).first(2))));
  const std::byte other[] = {std::byte{1}, std::byte{2}, std::byte{4}};
  EXPECT_TRUE(absl::IsDataLoss(CheckPayload(frame.header, other)));
  Frame empty;
  SealFrame(empty);
  EXPECT_TRUE(CheckPayload(empty.header, {}).ok());
}

}  // namespace
}  // namespace runnel::frame_test
