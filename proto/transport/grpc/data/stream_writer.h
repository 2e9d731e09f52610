#pragma once

// Frames as the messages of a gRPC stream on their way out: cut into pieces, paced, and written one
// at a time.

#include <grpcpp/support/byte_buffer.h>

#include <array>
#include <cstdint>
#include <deque>

#include "proto/transport/link/bandwidth.h"
#include "proto/transport/link/pacer.h"
#include "proto/transport/link/scheduler.h"
#include "proto/transport/link/transport.h"

namespace runnel {

// Not thread-safe: the stream's lock guards it.
class StreamWriter {
 public:
  // chunk_bytes: of a message's payload at most. `clock` outlives the writer.
  StreamWriter(int64_t chunk_bytes, const ThreadScheduler* clock)
      : chunk_bytes_(chunk_bytes), clock_(clock) {}

  // From now on; nothing is queued yet.
  void SetShaping(const LinkShaping& shaping) { pacer_ = Pacer(shaping); }
  void QueueFrame(const Frame& frame);
  // The message after which nothing follows.
  void QueueGoodbye();
  void Clear() { queue_.clear(); }
  bool empty() const { return queue_.empty(); }
  // When the first message is to be written; 0: at once. Not while the queue is empty.
  int64_t due_ns() const { return queue_.front().arrive_ns; }

  // The first message is being written until EndWrite.
  const grpc::ByteBuffer* BeginWrite();
  // Of the message that is being written: more messages follow as soon as this one is taken.
  bool more() const;
  bool is_goodbye() const { return current_.goodbye; }
  void EndWrite();
  bool writing() const { return writing_; }

  // Bytes that have not left.
  int64_t queued_bytes() const;

 private:
  struct Message {
    bool first = false;  // begins with the header
    bool goodbye = false;
    bool measured = false;  // a piece by itself: the peer measures the link (bandwidth.h)
    std::array<std::byte, kFrameHeaderBytes> header;
    Payload payload;
    size_t offset = 0;
    size_t size = 0;        // the payload's part of it
    int64_t leave_ns = 0;   // by the pacer
    int64_t arrive_ns = 0;  // not written before
    int64_t bytes() const { return static_cast<int64_t>(size) + (first ? kFrameHeaderBytes : 0); }
  };
  void Book(Message& message, int64_t now_ns);
  static grpc::ByteBuffer BufferOf(const Message& message);

  const int64_t chunk_bytes_;
  const ThreadScheduler* const clock_;
  Pacer pacer_{LinkShaping{}};
  MeasuredFrames measured_frames_;
  std::deque<Message> queue_;
  Message current_;  // being written
  bool writing_ = false;
  grpc::ByteBuffer buffer_;  // of current_
};

}  // namespace runnel
