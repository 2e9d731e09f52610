#include "proto/transport/grpc/data/grpc_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

GrpcStream::GrpcStream(StreamOptions options, std::string peer)
    : options_(std::move(options)),
      peer_(std::move(peer)),
      assembler_(options_.pool,
                 [this](const FrameHeader& header) { return gate_->Header(header); }) {}

void GrpcStream::SetCalls(StreamCalls* calls) {
  std::lock_guard<std::mutex> lock(mutex_);
  calls_ = calls;
}

bool GrpcStream::Attach(ConnectionObserver* observer, const LinkShaping& shaping) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (released_) return false;
  gate_ = std::make_shared<ObserverGate>(observer);
  pacer_ = Pacer(shaping);
  calls_->Read(&read_buffer_);
  for (const Frame& frame : std::exchange(waiting_, {})) QueueFrame(frame);
  if (closing_) QueueGoodbye();
  Pump();
  return true;
}

absl::Status GrpcStream::Send(const Frame& frame) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (over_ || closing_ || goodbye_received_ || released_) {
    return absl::UnavailableError("connection: closed, the frame is not sent");
  }
  if (gate_ == nullptr) {
    waiting_.push_back(frame);
    return absl::OkStatus();
  }
  QueueFrame(frame);
  Pump();
  return absl::OkStatus();
}

void GrpcStream::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (over_ || closing_ || goodbye_received_) return;
  closing_ = true;
  if (gate_ == nullptr) return;  // Attach goes on
  QueueGoodbye();
  Pump();
}

void GrpcStream::QueueFrame(const Frame& frame) {
  const int64_t now_ns = options_.scheduler->NowNanos();
  const size_t size = frame.payload.size();
  const int64_t chunk = pacer_.PieceBytes(options_.chunk_bytes);
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
    outgoing_.push_back(std::move(message));
  } while (offset < size);
}

void GrpcStream::QueueGoodbye() {
  Message message;
  message.goodbye = true;
  Book(message, pacer_.enabled() ? options_.scheduler->NowNanos() : 0);
  outgoing_.push_back(std::move(message));
}

void GrpcStream::Book(Message& message, int64_t now_ns) {
  if (!pacer_.enabled()) return;
  const Pacer::Times times = pacer_.Schedule(now_ns, message.bytes());
  message.leave_ns = times.leave_ns;
  message.arrive_ns = times.arrive_ns;
}

void GrpcStream::Pump() {
  if (writing_ || over_ || calls_ == nullptr || outgoing_.empty()) return;
  const int64_t due_ns = outgoing_.front().arrive_ns;
  if (due_ns > 0 && due_ns > options_.scheduler->NowNanos()) {
    if (std::exchange(timer_set_, true)) return;
    options_.scheduler->ScheduleAt(due_ns, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->TimerFired();
    });
    return;
  }
  current_ = std::move(outgoing_.front());
  outgoing_.pop_front();
  write_buffer_ = BufferOf(current_);
  writing_ = true;
  // The accepting end answers a goodbye by ending the stream, maybe before we hear that the goodbye
  // is written.
  if (current_.goodbye && !calls_->is_accepting_end()) goodbye_sent_ = true;
  // One system call and one wake-up of the peer for what goes together. Paced messages each have
  // their time, and those of a measured frame have the peer look at its clock.
  calls_->Write(&write_buffer_, !pacer_.enabled() && !current_.measured && !outgoing_.empty());
}

void GrpcStream::TimerFired() {
  std::lock_guard<std::mutex> lock(mutex_);
  timer_set_ = false;
  Pump();
}

grpc::ByteBuffer GrpcStream::BufferOf(const Message& message) {
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

void GrpcStream::WriteDone(bool ok) {
  std::lock_guard<std::mutex> lock(mutex_);
  writing_ = false;
  write_buffer_.Clear();
  const bool goodbye = current_.goodbye;
  current_ = Message();
  // A failed write: the stream is broken, the pending read says so too.
  if (!ok || over_) return;
  if (!goodbye) return Pump();
  goodbye_sent_ = true;
  if (calls_->is_accepting_end()) EndStream(absl::OkStatus(), false);
}

void GrpcStream::ReadDone(bool ok) {
  if (ok) Consume();
  std::lock_guard<std::mutex> lock(mutex_);
  if (over_) return;
  if (ok) return calls_->Read(&read_buffer_);
  const bool orderly = goodbye_received_ || goodbye_sent_;
  EndStream(orderly ? absl::OkStatus()
                    : absl::UnavailableError("connection: the stream ended without a goodbye"),
            writing_ && calls_->is_accepting_end());
}

void GrpcStream::Consume() {
  {
    // After the owner has let go, only what it sent still matters.
    std::lock_guard<std::mutex> lock(mutex_);
    if (released_ || over_) return;
  }
  slices_.clear();
  pieces_.clear();
  const bool readable = read_buffer_.Dump(&slices_).ok();
  read_buffer_.Clear();
  for (const grpc::Slice& slice : slices_) {
    pieces_.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  }
  const bool first = !assembler_.mid_frame();
  const absl::StatusOr<FrameAssembler::Progress> progress =
      readable ? assembler_.Add(pieces_)
               : absl::DataLossError("frame: a message that cannot be read");
  if (!progress.ok()) {
    Fail(progress.status());
  } else if (*progress == FrameAssembler::Progress::kPartial) {
    Arriving(first);
  } else if (*progress == FrameAssembler::Progress::kFrame) {
    if (!first) Arriving(false);
    Frame frame = assembler_.TakeFrame();
    if (!first) frame.arrival = arrival_.Finish();
    gate_->Deliver(std::move(frame));
  } else if (*progress == FrameAssembler::Progress::kGoodbye) {
    Goodbye();
  }
}

void GrpcStream::Arriving(bool first) {
  const int64_t now_ns = options_.scheduler->NowNanos();
  if (first) return arrival_.Begin(now_ns);
  int64_t bytes = 0;
  for (const absl::Span<const std::byte> piece : pieces_) {
    bytes += static_cast<int64_t>(piece.size());
  }
  arrival_.Add(now_ns, bytes);
}

void GrpcStream::Fail(const absl::Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (released_) return;
    if (!decided_) decided_ = status;
    // The accepting end's status reaches the peer unless a write stands in its way.
    EndStream(status, writing_ || calls_ == nullptr || !calls_->is_accepting_end());
  }
  gate_->Closed(status);
}

void GrpcStream::Goodbye() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    goodbye_received_ = true;
    outgoing_.clear();
    if (!over_ && calls_->is_accepting_end()) EndStream(absl::OkStatus(), false);
  }
  gate_->Closed(absl::OkStatus());
}

void GrpcStream::EndStream(const absl::Status& status, bool cancel) {
  if (std::exchange(over_, true)) return;
  outgoing_.clear();
  waiting_.clear();
  if (calls_ == nullptr) return;
  if (cancel) calls_->Cancel();
  calls_->End(status);
}

void GrpcStream::Done(const absl::Status& status) {
  absl::Status verdict;
  std::shared_ptr<ObserverGate> gate;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    verdict = Verdict(status);
    over_ = true;
    outgoing_.clear();
    calls_ = nullptr;
    gate = gate_;
  }
  if (gate != nullptr) gate->Closed(verdict);
}

absl::Status GrpcStream::Verdict(const absl::Status& status) const {
  if (decided_) return *decided_;
  if (goodbye_received_) return absl::OkStatus();
  // Only the accepting end confirms an end; it has no confirmation itself.
  if (goodbye_sent_ && (status.ok() || calls_->is_accepting_end())) return absl::OkStatus();
  if (!status.ok()) return status;
  if (assembler_.mid_frame()) {
    return absl::DataLossError("frame: the stream was ended in the middle of a frame");
  }
  return absl::UnavailableError("connection: the peer ended the stream without a goodbye");
}

int64_t GrpcStream::queued_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t bytes = 0;
  for (const Frame& frame : waiting_) {
    bytes += kFrameHeaderBytes + static_cast<int64_t>(frame.payload.size());
  }
  if (writing_) bytes += current_.bytes();
  const int64_t now_ns = pacer_.enabled() ? options_.scheduler->NowNanos() : 0;
  for (const Message& message : outgoing_) {
    // Between leaving and arriving it is on the way, not queued.
    const bool on_the_way = message.leave_ns <= now_ns && now_ns < message.arrive_ns;
    if (!on_the_way) bytes += message.bytes();
  }
  return bytes;
}

void GrpcStream::Release() {
  std::shared_ptr<ObserverGate> gate;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    released_ = true;
    gate = gate_;
    const bool orderly = closing_ || goodbye_received_;
    if (gate != nullptr && !orderly) {
      if (!decided_) decided_ = absl::OkStatus();
      EndStream(absl::CancelledError("connection: the peer let go of it"), true);
    }
  }
  if (gate != nullptr) gate->Closed(absl::OkStatus());
}

void GrpcStream::Abort(const absl::Status& status) {
  std::shared_ptr<ObserverGate> gate;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    gate = gate_;
    if (!decided_) decided_ = status;
    // Even after EndStream: an orderly end may wait for a peer that does not come.
    if (calls_ != nullptr) calls_->Cancel();
    if (gate != nullptr) EndStream(status.ok() ? absl::CancelledError("closed") : status, false);
  }
  if (gate != nullptr) gate->Closed(status);
}

}  // namespace runnel
