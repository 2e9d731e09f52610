#include "proto/transport/grpc/data/stream_writer.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <utility>

namespace runnel {

void StreamWriter::QueueFrame(const Frame& frame) {
  const int64_t now_ns = clock_->NowNanos();
  const size_t size = frame.payload.size();
  const int64_t chunk = pacer_.PieceBytes(chunk_bytes_);
  const int64_t measured = measured_frames_.PieceBytes(frame.header, now_ns);
  const size_t piece = static_cast<size_t>(measured > 0 ? std::min(measured, chunk) : chunk);
  size_t offset = 0;
  do {
    Message message;
    message.first = offset == 0;
    if (message.first) message.header = EncodeHeader(frame.header);
    message.payload = frame.payload;
    message.offset = offset;
    message.size = std::min(piece, size - offset);
    message.measured = measured > 0;
    offset += message.size;
    Book(message, now_ns);
    queue_.push_back(std::move(message));
  } while (offset < size);
}

void StreamWriter::QueueGoodbye() {
  Message message;
  message.goodbye = true;
  Book(message, pacer_.enabled() ? clock_->NowNanos() : 0);
  queue_.push_back(std::move(message));
}

void StreamWriter::Book(Message& message, int64_t now_ns) {
  if (!pacer_.enabled()) return;
  const Pacer::Times times = pacer_.Schedule(now_ns, message.bytes());
  message.leave_ns = times.leave_ns;
  message.arrive_ns = times.arrive_ns;
}

const grpc::ByteBuffer* StreamWriter::BeginWrite() {
  current_ = std::move(queue_.front());
  queue_.pop_front();
  buffer_ = BufferOf(current_);
  writing_ = true;
  return &buffer_;
}

// One system call and one wake-up of the peer for what goes together. Paced messages each have
// their time, and those of a measured frame have the peer look at its clock.
bool StreamWriter::more() const {
  return !pacer_.enabled() && !current_.measured && !queue_.empty();
}

void StreamWriter::EndWrite() {
  writing_ = false;
  buffer_.Clear();
  current_ = Message();
}

grpc::ByteBuffer StreamWriter::BufferOf(const Message& message) {
  grpc::Slice slices[2];
  size_t count = 0;
  if (message.first) slices[count++] = grpc::Slice(message.header.data(), message.header.size());
  if (message.size > 0) {
    // The slice shares the block: the copy of the reference goes when gRPC drops the slice.
    auto* reference = new Payload(message.payload);
    auto* bytes = const_cast<std::byte*>(message.payload.bytes().data()) + message.offset;
    slices[count++] = grpc::Slice(
        bytes, message.size, [](void* payload) { delete static_cast<Payload*>(payload); },
        reference);
  }
  return grpc::ByteBuffer(slices, count);
}

int64_t StreamWriter::queued_bytes() const {
  int64_t bytes = writing_ ? current_.bytes() : 0;
  const int64_t now_ns = pacer_.enabled() ? clock_->NowNanos() : 0;
  for (const Message& message : queue_) {
    // Between leaving and arriving it is on the way, not queued.
    const bool on_the_way = message.leave_ns <= now_ns && now_ns < message.arrive_ns;
    if (!on_the_way) bytes += message.bytes();
  }
  return bytes;
}

}  // namespace runnel
