#pragma once

// A data frame: a fixed header of 64 bytes and a raw payload.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/ids.h"
#include "proto/base/tensor/encoded_bytes.h"
#include "proto/base/tensor/payload.h"

namespace runnel {

// Wire numbers: never reuse one.
enum class FrameKind : uint8_t {
  kHello = 1,  // first frame each way on a connection: who speaks; payload: the link's token
  kAck =
      2,  // header only: everything of `acked_kind` up to (generation, sequence) has been consumed
  kActivation = 3,  // stage i -> i + 1
  kGradient = 4,    // stage i + 1 -> i
  kInput = 5,       // central -> stage 0: FP32 samples
  kLabels = 6,      // central -> the stage with the loss: int32 per sample
  kEvalInput = 7,   // as kInput in evaluation, with a sequence space of its own
  kEvalActivation = 8,
  kEvalLabels = 9,
  kProbe = 10,        // bytes that mean nothing: measures the link (bandwidth.h)
  kProbeReport = 11,  // the measurement of a probe's receiver
  kRefusal = 12,      // last frame on a connection that its accepting end does not want; why
  kReplica = 13,      // a piece of a stage's state for its neighbour to keep; sequence: its number
  // Of a dry run, with a sequence space of their own: what the first four of training are.
  kDryInput = 14,
  kDryActivation = 15,
  kDryGradient = 16,
  kDryLabels = 17,
  // Clipping (--clip-norm), once a step: a double, the sum of the squares of the gradient.
  kGradientSquares = 18,  // stage i + 1 -> i: of the layers from stage i + 1 on
  kGradientNorm = 19,     // stage i -> i + 1: of all layers
};
inline constexpr int kMaxFrameKind = 19;

// Frames of a dry run's micro-batch: exact, then through codecs.
inline constexpr int kDryPasses = 2;
inline constexpr bool IsDry(FrameKind kind) {
  return kind >= FrameKind::kDryInput && kind <= FrameKind::kDryLabels;
}

inline constexpr bool IsOfClipping(FrameKind kind) {
  return kind == FrameKind::kGradientSquares || kind == FrameKind::kGradientNorm;
}

// The kind of a boundary tensor in training.
inline constexpr FrameKind KindOf(Direction direction) {
  return direction == Direction::kForward ? FrameKind::kActivation : FrameKind::kGradient;
}

// Layout on the wire, little-endian: magic u32 "RNL1", version u8, kind u8, acked_kind u8,
// 1 byte zero, generation i32, samples u32, sequence i64, payload_bytes u64, payload CRC-32 u32,
// 24 bytes zero, CRC-32 of the preceding 60 bytes u32.
struct FrameHeader {
  FrameKind kind = FrameKind::kActivation;
  FrameKind acked_kind = FrameKind::kHello;  // kAck only
  Generation generation;
  uint32_t samples = 0;  // samples of the micro-batch; with the plan they fix the tensor's shape
  Sequence sequence;
  uint64_t payload_bytes = 0;
  uint32_t payload_crc = 0;

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// Bytes of a frame that had arrived, counted from the end of its first piece, and when.
struct ArrivalPoint {
  int64_t bytes = 0;
  int64_t ns = 0;
};

// Arrival of a frame as its receiver read it: the bytes after the frame's first piece and the time
// from that piece to the last one. Zero: one piece, or not received.
struct FrameArrival {
  int64_t bytes = 0;
  int64_t ns = 0;
  std::vector<ArrivalPoint> between = {};  // after the first piece, before the last; ascending
};

struct Frame {
  FrameHeader header;
  Payload payload;
  FrameArrival arrival;  // not on the wire
};

inline constexpr uint8_t kFrameVersion = 2;
// No payload of ours is larger: checked before allocation, under the tighter limit of the link.
inline constexpr uint64_t kMaxPayloadBytes = uint64_t{1} << 30;

// CRC-32 (IEEE 802.3) of `bytes`, continuing from `crc`; 0 starts one.
uint32_t Crc32(uint32_t crc, absl::Span<const std::byte> bytes);

// Fills payload_bytes and payload_crc of `frame.header` from its payload.
void SealFrame(Frame& frame);

std::array<std::byte, kFrameHeaderBytes> EncodeHeader(const FrameHeader& header);

// DataLoss: the CRC does not fit the bytes. InvalidArgument names the field: wrong magic, version,
// kind, negative generation or sequence, payload over kMaxPayloadBytes, an ack with a payload,
// non-zero reserved bytes, not 64 bytes.
absl::StatusOr<FrameHeader> DecodeHeader(absl::Span<const std::byte> bytes);

// DataLoss if the payload does not fit the header.
absl::Status CheckPayload(const FrameHeader& header, absl::Span<const std::byte> payload);

}  // namespace runnel
