// What comes over a data link: messages, each two bytes of length and then so many bytes. The CRC
// of a first piece's header is mended in every second input, or hardly any would pass.

#include <algorithm>
#include <array>
#include <optional>

#include "proto/base/tensor/payload.h"
#include "proto/transport/link/frame_assembler.h"
#include "tests/fuzz/fuzz_target.h"

namespace runnel::fuzz {
namespace {

std::string Message(absl::string_view bytes) {
  std::string out = {static_cast<char>(bytes.size() >> 8), static_cast<char>(bytes.size())};
  return out.append(bytes.data(), bytes.size());
}

std::string WholeFrame(FrameKind kind, size_t bytes) {
  Frame frame;
  frame.header.kind = kind;
  frame.payload = Payload::CopyOf(std::vector<std::byte>(bytes, std::byte{7}));
  SealFrame(frame);
  const auto header = EncodeHeader(frame.header);
  std::string whole(reinterpret_cast<const char*>(header.data()), header.size());
  return whole.append(bytes, '\x07');
}

void MendCrc(std::string& message) {
  if (message.size() < kFrameHeaderBytes) return;
  const uint32_t crc =
      Crc32(0, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(message.data()), 60));
  for (size_t i = 0; i < 4; ++i) message[60 + i] = static_cast<char>(crc >> (8 * i));
}

// A header is refused as what it is, or read back the same.
void CheckHeader(absl::string_view message) {
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(message.data()),
                                          std::min<size_t>(message.size(), kFrameHeaderBytes));
  const absl::StatusOr<FrameHeader> header = DecodeHeader(bytes);
  if (!header.ok()) {
    Require(absl::IsInvalidArgument(header.status()) || absl::IsDataLoss(header.status()),
            "a header that is refused is wrong or damaged");
    return;
  }
  Require(absl::MakeConstSpan(EncodeHeader(*header)) == bytes, "a header is read back the same");
  Require(header->sequence >= Sequence(0), "no number of a micro-batch is negative");
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const char mends : {'\0', '\1'}) {
    for (int kind = 1; kind <= kMaxFrameKind; ++kind) {
      const std::string whole = WholeFrame(static_cast<FrameKind>(kind), 100);
      seeds.push_back(mends + Message(whole));
      seeds.push_back(mends + Message(absl::string_view(whole).substr(0, 80)) +
                      Message(absl::string_view(whole).substr(80)) + Message(""));
    }
  }
  return seeds;
}

void Try(absl::string_view input) {
  if (input.empty()) return;
  const bool mends = (input[0] & 1) != 0;
  input.remove_prefix(1);
  BufferPool pool;
  FrameAssembler assembler(&pool, [](const FrameHeader& header) {
    Require(header.payload_bytes <= kMaxPayloadBytes, "no header of a larger payload passes");
    return header.payload_bytes <= 1 << 20 ? absl::OkStatus()
                                           : absl::InvalidArgumentError("over the link's limit");
  });
  while (input.size() >= 2) {
    const size_t length =
        size_t{static_cast<uint8_t>(input[0])} << 8 | static_cast<uint8_t>(input[1]);
    std::string message(input.substr(2, length));
    input.remove_prefix(2 + message.size());
    if (mends && !assembler.mid_frame()) MendCrc(message);
    if (!assembler.mid_frame()) CheckHeader(message);
    // In two pieces, as a transport hands them on.
    const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(message.data()),
                                            message.size());
    const std::array<absl::Span<const std::byte>, 2> pieces = {bytes.first(bytes.size() / 2),
                                                               bytes.subspan(bytes.size() / 2)};
    const auto progress = assembler.Add(pieces);
    if (!progress.ok()) {
      Require(!assembler.Add(pieces).ok(), "after an error nothing is accepted");
      return;
    }
    if (*progress != FrameAssembler::Progress::kFrame) continue;
    const Frame frame = assembler.TakeFrame();
    Require(CheckPayload(frame.header, frame.payload.bytes()).ok(), "whole frames fit their CRC");
  }
}

}  // namespace runnel::fuzz
