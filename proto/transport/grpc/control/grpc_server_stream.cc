#include "proto/transport/grpc/control/grpc_server_stream.h"

#include <utility>
#include <variant>

#include "proto/base/status_macros.h"
#include "proto/transport/control/control_convert.h"

namespace runnel {
namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;
// Largest first message of a worker.
constexpr size_t kMaxHelloBytes = 4 << 10;

absl::Status NoSuchStream(ConnectionId id) {
  return absl::NotFoundError(absl::StrCat("control stream ", id.value(), ": is not there"));
}

}  // namespace

absl::StatusOr<int64_t> ServerStream::Attach(std::shared_ptr<ServerCall> call,
                                             int64_t peer_received) {
  std::lock_guard<std::mutex> in_order(receiving_);
  std::shared_ptr<ServerCall> before;  // destroyed without the lock
  int64_t received = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (course_ != StreamCourse::kOpen || !end_.ok())
      return absl::NotFoundError("the stream has ended");
    RUNNEL_RETURN_IF_ERROR(messages_.session().Connect(peer_received));
    received = messages_.session().received();
    before = std::exchange(call_, std::move(call));
    // The old call ends by itself, as it is no longer the stream's.
    if (before != nullptr && !before->done) before->Cancel();
  }
  if (joined()) streams_->observer().OnResumed(id_);
  return received;
}

void ServerStream::AwaitHello() {
  streams_->timers().PostAfter(
      streams_->options().hello_deadline_ms * kNanosPerMilli, [weak = weak_from_this()] {
        const std::shared_ptr<ServerStream> self = weak.lock();
        if (self == nullptr || self->joined()) return;
        self->Fail(absl::InvalidArgumentError(absl::StrCat(
            "hello: did not come within ", self->streams_->options().hello_deadline_ms, " ms")));
      });
}

absl::Status ServerStream::Send(CentralMessage message) {
  const bool takes_back = std::holds_alternative<AbortPlan>(message);
  if (std::holds_alternative<Welcome>(message)) standing_ = Standing::kWelcomed;
  proto::FromCentral wire = ToProto(std::move(message));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (course_ == StreamCourse::kOver) return NoSuchStream(id_);
    if (course_ == StreamCourse::kClosing || !end_.ok())
      return absl::UnavailableError("control stream: is closed");
    // A stage that is still on its way is of no more use.
    if (takes_back) messages_.queue().DropBulk();
    RUNNEL_RETURN_IF_ERROR(messages_.queue().Push(std::move(wire)));
  }
  Step();
  return absl::OkStatus();
}

TransferProgress ServerStream::Transfer() {
  std::lock_guard<std::mutex> lock(mutex_);
  TransferProgress progress = messages_.queue().progress();
  progress.received_bytes = held_bytes_;
  return progress;
}

void ServerStream::Close() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    deaf_ = true;
  }
  EndInOrder();
}

void ServerStream::EndInOrder() {
  bool is_broken = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (course_ != StreamCourse::kOpen) return;
    course_ = StreamCourse::kClosing;
    is_broken = call_ == nullptr;
  }
  if (is_broken) return Gone(absl::UnavailableError("control stream: the connection broke"));
  CutOffAfterTimeout();
  Step();
}

void ServerStream::Fail(absl::Status status) {
  bool is_broken = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (course_ == StreamCourse::kOver || !end_.ok()) return;
    end_ = status;
    refused_ = true;
    messages_.queue().Clear();
    is_broken = call_ == nullptr;
  }
  if (!joined()) streams_->LogRefusal(status.message());
  if (is_broken) return Gone(status);
  CutOffAfterTimeout();
  Step();
}

void ServerStream::CutOffAfterTimeout() {
  streams_->timers().PostAfter(streams_->options().close_timeout_ms * kNanosPerMilli,
                               [weak = weak_from_this()] {
                                 const std::shared_ptr<ServerStream> self = weak.lock();
                                 if (self == nullptr) return;
                                 std::lock_guard<std::mutex> lock(self->mutex_);
                                 if (self->call_ != nullptr && !self->call_->done)
                                   self->call_->Cancel();
                               });
}

void ServerStream::Step() {
  std::shared_ptr<ServerCall> call;
  std::optional<std::string> next;
  absl::Status end;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    call = call_;
    if (call == nullptr || !call->begun || call->writing || call->finished) return;
    if (end_.ok() && !call->unwritable) next = messages_.Next(NowNanos());
    const bool has_nothing =
        call->unwritable || (messages_.queue().empty() && messages_.session().sent_all());
    if (next.has_value()) {
      call->writing = true;
    } else if (!end_.ok() || (course_ == StreamCourse::kClosing && has_nothing)) {
      call->finished = true;
      end = end_;
    } else {
      return;
    }
  }
  if (next.has_value()) {
    call->Write(*next);
  } else {
    call->End(end);
  }
}

void ServerStream::Began(ServerCall& call) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    call.begun = true;
  }
  Step();
}

void ServerStream::WriteEnded(ServerCall& call, bool ok) {
  bool ends = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    call.writing = false;
    call.unwritable = call.unwritable || !ok;
    // An old call that is no longer the stream's reports nothing else.
    ends = call_.get() != &call && !std::exchange(call.finished, true);
  }
  if (ends) return call.End(absl::CancelledError("there is another connection"));
  Step();
}

void ServerStream::ReadEnded(ServerCall& call) {
  const std::shared_ptr<ServerStream> self = shared_from_this();  // longer than the listener has it
  // The stream's owner hears of the break before the next connection.
  std::unique_lock<std::mutex> in_order(receiving_);
  bool ends_in_order = false;
  bool is_current = false;
  bool finishes = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_current = call_.get() == &call;
    ends_in_order =
        goodbye_ || course_ == StreamCourse::kClosing || !end_.ok() || session_key_.empty();
    if (is_current && ends_in_order) {
      messages_.queue().SendWithoutWaiting();
    } else {
      if (is_current) call_ = nullptr;
      finishes = !call.writing && !std::exchange(call.finished, true);
    }
  }
  if (is_current && ends_in_order) {
    in_order.unlock();
    EndInOrder();
    return Step();
  }
  // Finish may end the call: nothing of it is touched afterwards.
  if (finishes) call.End(absl::CancelledError("the connection broke"));
  if (is_current) Break();
}

void ServerStream::Break() {
  const absl::Status why = absl::UnavailableError("control stream: the connection broke");
  if (!joined() || !streams_->observer().OnBroken(id_, why)) Gone(why);
}

absl::Status ServerStream::Join(const WorkerMessage& message) {
  const auto& hello = std::get<WorkerHello>(message);
  if (peer_.has_value() && hello.name != peer_->subject.name) {
    return absl::PermissionDeniedError(absl::StrCat(
        "hello: says to be ", hello.name, ", the certificate is that of ", peer_->subject.name));
  }
  standing_ = Standing::kJoined;
  streams_->observer().OnJoined(id_);
  return absl::OkStatus();
}

absl::Status ServerStream::Receive(ServerCall& call, const grpc::ByteBuffer& bytes) {
  std::lock_guard<std::mutex> in_order(receiving_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // Messages of an older connection come again on the new one.
    if (call_.get() != &call || !end_.ok()) return absl::OkStatus();
  }
  if (!joined() && bytes.Length() > kMaxHelloBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("hello: ", bytes.Length(), " bytes are over ", kMaxHelloBytes));
  }
  incoming_.SetLimit(standing_ == Standing::kWelcomed ? streams_->max_state_bytes() : 0);
  RUNNEL_ASSIGN_OR_RETURN(std::optional<proto::FromWorker> wire, incoming_.Add(ToBytes(bytes)));
  held_bytes_ = incoming_.held_bytes();
  const PartNews news = incoming_.TakeNews();
  bool is_deaf = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    RUNNEL_RETURN_IF_ERROR(messages_.Settle(news, NowNanos()));
    goodbye_ = goodbye_ || news.goodbye;
    if (wire.has_value() && wire->has_heartbeat()) messages_.OweAnswer();
    is_deaf = deaf_;
  }
  Step();
  if (is_deaf) return absl::OkStatus();
  if (!joined() && !(wire.has_value() && wire->has_hello())) {
    return absl::InvalidArgumentError("hello: is not the first message");
  }
  if (!wire.has_value()) return absl::OkStatus();
  RUNNEL_RETURN_IF_ERROR(CheckWireSize(*wire, bytes.Length()));
  RUNNEL_ASSIGN_OR_RETURN(WorkerMessage message, FromProto(*std::move(wire)));
  if (!joined()) RUNNEL_RETURN_IF_ERROR(Join(message));
  streams_->observer().OnMessage(id_, std::move(message));
  return absl::OkStatus();
}

void ServerStream::Ended(ServerCall& call, bool was_cancelled) {
  const std::shared_ptr<ServerStream> self = shared_from_this();
  std::shared_ptr<ServerCall> ended;  // destroyed without the lock, when this returns
  absl::Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    call.done = true;
    if (call_.get() != &call) return;
    ended = std::move(call_);
    call_ = nullptr;
    status = end_;
    if (status.ok() && was_cancelled)
      status = absl::UnavailableError("control stream: the connection broke");
  }
  Gone(status);
}

void ServerStream::Gone(const absl::Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(course_, StreamCourse::kOver) == StreamCourse::kOver) return;
    messages_.queue().Clear();
  }
  if (joined()) streams_->observer().OnGone(id_, status);
  streams_->Remove(id_);
}

}  // namespace runnel
