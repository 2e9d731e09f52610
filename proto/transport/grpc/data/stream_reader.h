#pragma once

// Frames out of the messages that a gRPC stream reads, and when their pieces came.

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/transport/link/bandwidth.h"
#include "proto/transport/link/frame_assembler.h"
#include "proto/transport/link/scheduler.h"

namespace runnel {

// Not thread-safe: gRPC has one read under way, and its completion uses the reader.
class StreamReader {
 public:
  // on_header: FrameAssembler's. `pool` and `clock` outlive the reader.
  StreamReader(BufferPool* pool, FrameAssembler::HeaderFn on_header, const ThreadScheduler* clock)
      : clock_(clock), assembler_(pool, std::move(on_header)) {}

  // Where gRPC puts the next message.
  grpc::ByteBuffer* buffer() { return &buffer_; }
  // Takes the message. Errors as FrameAssembler::Add; DataLoss: it cannot be read.
  absl::StatusOr<FrameAssembler::Progress> Take();
  // After kFrame.
  Frame TakeFrame();
  bool mid_frame() const { return assembler_.mid_frame(); }

 private:
  // A piece of a frame that is more than one piece has come in.
  void Arriving(bool first);

  const ThreadScheduler* const clock_;
  FrameAssembler assembler_;
  ArrivalRecorder arrival_;
  bool in_pieces_ = false;  // the last message was not the first of its frame
  grpc::ByteBuffer buffer_;
  std::vector<grpc::Slice> slices_;
  std::vector<absl::Span<const std::byte>> pieces_;
};

}  // namespace runnel
