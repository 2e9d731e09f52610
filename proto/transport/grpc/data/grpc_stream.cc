#include "proto/transport/grpc/data/grpc_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

GrpcStream::GrpcStream(StreamOptions options, std::string peer)
    : options_(std::move(options)),
      peer_(std::move(peer)),
      writer_(options_.chunk_bytes, options_.scheduler.get()),
      reader_(
          options_.pool, [this](const FrameHeader& header) { return gate_->Header(header); },
          options_.scheduler.get()) {}

void GrpcStream::SetCalls(StreamCalls* calls) {
  std::lock_guard<std::mutex> lock(mutex_);
  calls_ = calls;
}

bool GrpcStream::Attach(ConnectionObserver* observer, const LinkShaping& shaping) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (released_) return false;
  gate_ = std::make_shared<ObserverGate>(observer);
  writer_.SetShaping(shaping);
  calls_->Read(reader_.buffer());
  for (const Frame& frame : std::exchange(waiting_, {})) writer_.QueueFrame(frame);
  if (closing_) writer_.QueueGoodbye();
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
  writer_.QueueFrame(frame);
  Pump();
  return absl::OkStatus();
}

void GrpcStream::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (over_ || closing_ || goodbye_received_) return;
  closing_ = true;
  if (gate_ == nullptr) return;  // Attach goes on
  writer_.QueueGoodbye();
  Pump();
}

void GrpcStream::Pump() {
  if (writer_.writing() || over_ || calls_ == nullptr || writer_.empty()) return;
  const int64_t due_ns = writer_.due_ns();
  if (due_ns > 0 && due_ns > options_.scheduler->NowNanos()) {
    if (std::exchange(timer_set_, true)) return;
    options_.scheduler->ScheduleAt(due_ns, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->TimerFired();
    });
    return;
  }
  const grpc::ByteBuffer* message = writer_.BeginWrite();
  // The accepting end answers a goodbye by ending the stream, maybe before we hear that the goodbye
  // is written.
  if (writer_.is_goodbye() && !calls_->is_accepting_end()) goodbye_sent_ = true;
  calls_->Write(message, writer_.more());
}

void GrpcStream::TimerFired() {
  std::lock_guard<std::mutex> lock(mutex_);
  timer_set_ = false;
  Pump();
}

void GrpcStream::WriteDone(bool ok) {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool goodbye = writer_.is_goodbye();
  writer_.EndWrite();
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
  if (ok) return calls_->Read(reader_.buffer());
  const bool orderly = goodbye_received_ || goodbye_sent_;
  EndStream(orderly ? absl::OkStatus()
                    : absl::UnavailableError("connection: the stream ended without a goodbye"),
            writer_.writing() && calls_->is_accepting_end());
}

void GrpcStream::Consume() {
  {
    // After the owner has let go, only what it sent still matters.
    std::lock_guard<std::mutex> lock(mutex_);
    if (released_ || over_) return;
  }
  const absl::StatusOr<FrameAssembler::Progress> progress = reader_.Take();
  if (!progress.ok()) {
    Fail(progress.status());
  } else if (*progress == FrameAssembler::Progress::kFrame) {
    gate_->Deliver(reader_.TakeFrame());
  } else if (*progress == FrameAssembler::Progress::kGoodbye) {
    Goodbye();
  }
}

void GrpcStream::Fail(const absl::Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (released_) return;
    if (!decided_) decided_ = status;
    // The accepting end's status reaches the peer unless a write stands in its way.
    EndStream(status, writer_.writing() || calls_ == nullptr || !calls_->is_accepting_end());
  }
  gate_->Closed(status);
}

void GrpcStream::Goodbye() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    goodbye_received_ = true;
    writer_.Clear();
    if (!over_ && calls_->is_accepting_end()) EndStream(absl::OkStatus(), false);
  }
  gate_->Closed(absl::OkStatus());
}

void GrpcStream::EndStream(const absl::Status& status, bool cancel) {
  if (std::exchange(over_, true)) return;
  writer_.Clear();
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
    writer_.Clear();
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
  if (reader_.mid_frame()) {
    return absl::DataLossError("frame: the stream was ended in the middle of a frame");
  }
  return absl::UnavailableError("connection: the peer ended the stream without a goodbye");
}

int64_t GrpcStream::queued_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t bytes = writer_.queued_bytes();
  for (const Frame& frame : waiting_) {
    bytes += kFrameHeaderBytes + static_cast<int64_t>(frame.payload.size());
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
