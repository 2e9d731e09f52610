#include "proto/transport/link/frame.h"

#include <libdeflate.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

constexpr uint32_t kMagic = 0x314C4E52;  // "RNL1", little-endian

// Offsets of the fields; frame.h gives their order.
constexpr size_t kMagicAt = 0;
constexpr size_t kVersionAt = 4;
constexpr size_t kKindAt = 5;
constexpr size_t kAckedKindAt = 6;
constexpr size_t kZeroAt = 7;
constexpr size_t kGenerationAt = 8;
constexpr size_t kSamplesAt = 12;
constexpr size_t kSequenceAt = 16;
constexpr size_t kPayloadBytesAt = 24;
constexpr size_t kPayloadCrcAt = 32;
constexpr size_t kReservedAt = 36;
constexpr size_t kHeaderCrcAt = 60;
static_assert(kHeaderCrcAt + sizeof(uint32_t) == kFrameHeaderBytes);

// Byte by byte, so that the host's byte order does not matter; compilers make one store of it.
template <typename T>
void Put(std::byte* at, T value) {
  const auto bits = static_cast<std::make_unsigned_t<T>>(value);
  for (size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<std::byte>(bits >> (8 * i));
}

template <typename T>
T Get(const std::byte* at) {
  std::make_unsigned_t<T> bits = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    bits |= static_cast<std::make_unsigned_t<T>>(std::to_integer<uint8_t>(at[i])) << (8 * i);
  }
  return static_cast<T>(bits);
}

absl::Status Bad(absl::string_view field, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("frame header: ", field, ": ", why));
}

bool IsKind(uint8_t kind) { return kind >= 1 && kind <= kMaxFrameKind; }

// Checks the fields that make these 64 bytes a header of ours.
absl::Status CheckEnvelope(absl::Span<const std::byte> bytes) {
  if (bytes.size() != kFrameHeaderBytes) {
    return Bad("size", absl::StrCat(bytes.size(), " bytes instead of ", kFrameHeaderBytes));
  }
  const std::byte* at = bytes.data();
  // First: damaged bytes may look like anything.
  if (Get<uint32_t>(at + kHeaderCrcAt) != Crc32(0, bytes.first(kHeaderCrcAt))) {
    return absl::DataLossError("frame header: CRC: does not fit the header");
  }
  if (Get<uint32_t>(at + kMagicAt) != kMagic) return Bad("magic", "not a frame of ours");
  if (const int version = Get<uint8_t>(at + kVersionAt); version != kFrameVersion) {
    return Bad("version", absl::StrCat(version, " instead of ", kFrameVersion));
  }
  return absl::OkStatus();
}

absl::Status CheckFields(const FrameHeader& header) {
  if (!IsKind(static_cast<uint8_t>(header.kind))) {
    return Bad("kind", absl::StrCat(static_cast<int>(header.kind), " is not known"));
  }
  if (!IsKind(static_cast<uint8_t>(header.acked_kind))) {
    return Bad("acked_kind", absl::StrCat(static_cast<int>(header.acked_kind), " is not known"));
  }
  if (header.generation < Generation(0)) return Bad("generation", "negative");
  if (header.sequence < Sequence(0)) return Bad("sequence", "negative");
  if (header.payload_bytes > kMaxPayloadBytes) {
    return Bad("payload_bytes",
               absl::StrCat(header.payload_bytes, " is over the limit of ", kMaxPayloadBytes));
  }
  if (header.kind == FrameKind::kAck && header.payload_bytes != 0) {
    return Bad("payload_bytes", "an ack has no payload");
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t Crc32(uint32_t crc, absl::Span<const std::byte> bytes) {
  // libdeflate takes a null pointer for "give me the initial value".
  return bytes.empty() ? crc : libdeflate_crc32(crc, bytes.data(), bytes.size());
}

void SealFrame(Frame& frame) {
  frame.header.payload_bytes = frame.payload.size();
  frame.header.payload_crc = Crc32(0, frame.payload.bytes());
}

std::array<std::byte, kFrameHeaderBytes> EncodeHeader(const FrameHeader& header) {
  std::array<std::byte, kFrameHeaderBytes> bytes{};
  std::byte* at = bytes.data();
  Put(at + kMagicAt, kMagic);
  Put(at + kVersionAt, kFrameVersion);
  Put(at + kKindAt, static_cast<uint8_t>(header.kind));
  Put(at + kAckedKindAt, static_cast<uint8_t>(header.acked_kind));
  Put(at + kGenerationAt, header.generation.value());
  Put(at + kSamplesAt, header.samples);
  Put(at + kSequenceAt, header.sequence.value());
  Put(at + kPayloadBytesAt, header.payload_bytes);
  Put(at + kPayloadCrcAt, header.payload_crc);
  Put(at + kHeaderCrcAt, Crc32(0, absl::MakeConstSpan(bytes).first(kHeaderCrcAt)));
  return bytes;
}

absl::StatusOr<FrameHeader> DecodeHeader(absl::Span<const std::byte> bytes) {
  if (absl::Status status = CheckEnvelope(bytes); !status.ok()) return status;
  const std::byte* at = bytes.data();
  const absl::Span<const std::byte> reserved =
      bytes.subspan(kReservedAt, kHeaderCrcAt - kReservedAt);
  if (at[kZeroAt] != std::byte{} || !std::all_of(reserved.begin(), reserved.end(),
                                                 [](std::byte b) { return b == std::byte{}; })) {
    return Bad("reserved", "not zero");
  }
  FrameHeader header;
  header.kind = static_cast<FrameKind>(Get<uint8_t>(at + kKindAt));
  header.acked_kind = static_cast<FrameKind>(Get<uint8_t>(at + kAckedKindAt));
  header.generation = Generation(Get<int32_t>(at + kGenerationAt));
  header.samples = Get<uint32_t>(at + kSamplesAt);
  header.sequence = Sequence(Get<int64_t>(at + kSequenceAt));
  header.payload_bytes = Get<uint64_t>(at + kPayloadBytesAt);
  header.payload_crc = Get<uint32_t>(at + kPayloadCrcAt);
  if (absl::Status status = CheckFields(header); !status.ok()) return status;
  return header;
}

absl::Status CheckPayload(const FrameHeader& header, absl::Span<const std::byte> payload) {
  if (payload.size() != header.payload_bytes) {
    return absl::DataLossError(absl::StrCat("frame payload: ", payload.size(), " bytes instead of ",
                                            header.payload_bytes));
  }
  if (Crc32(0, payload) != header.payload_crc) {
    return absl::DataLossError("frame payload: CRC does not fit the bytes");
  }
  return absl::OkStatus();
}

}  // namespace runnel
