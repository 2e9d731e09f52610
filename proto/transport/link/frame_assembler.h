#pragma once

// Frames out of the messages of a stream: the first message of a frame is its
// header and the beginning of its payload, the following ones continue the payload, none holds
// bytes of two frames. An empty message between frames is the sender's goodbye: a stream that ends
// without one broke.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/transport/link/frame.h"

namespace runnel {

// Payload bytes in a message at most, whatever the sender's own chunk size.
inline constexpr int64_t kMaxChunkBytes = int64_t{4} << 20;

// Not thread-safe. After an error it accepts nothing more.
class FrameAssembler {
 public:
  enum class Progress { kPartial, kFrame, kGoodbye };
  // Refuses a frame before memory is taken for it.
  using HeaderFn = std::function<absl::Status(const FrameHeader& header)>;

  // `pool` outlives the assembler.
  FrameAssembler(BufferPool* pool, HeaderFn on_header)
      : pool_(pool), on_header_(std::move(on_header)) {}

  // Takes one message, its bytes in pieces. kFrame: TakeFrame() has it. InvalidArgument: a message
  // that is too long or too short, a bad header (frame.h), anything after the goodbye. DataLoss:
  // the payload does not fit its CRC, or a goodbye in the middle of a frame. ResourceExhausted: no
  // memory for the payload. Otherwise the error of the HeaderFn.
  absl::StatusOr<Progress> Add(absl::Span<const absl::Span<const std::byte>> pieces);
  Frame TakeFrame() { return std::move(frame_); }

  bool mid_frame() const { return in_frame_; }

 private:
  absl::StatusOr<Progress> AddChecked(absl::Span<const absl::Span<const std::byte>> pieces,
                                      uint64_t size);
  absl::Status BeginFrame(absl::Span<const absl::Span<const std::byte>> pieces, uint64_t size);
  void Append(absl::Span<const absl::Span<const std::byte>> pieces, uint64_t skip);

  BufferPool* const pool_;
  const HeaderFn on_header_;
  bool in_frame_ = false;
  bool goodbye_ = false;
  bool failed_ = false;
  Frame frame_;
  uint64_t received_bytes_ = 0;  // received bytes of the payload
  uint32_t crc_ = 0;             // CRC of the received bytes
};

}  // namespace runnel
