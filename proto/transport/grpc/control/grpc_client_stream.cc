#include "proto/transport/grpc/control/grpc_client_stream.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"
#include "proto/transport/control/control_convert.h"

namespace runnel {
namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;
// Before a broken stream is dialled again.
constexpr int64_t kRedialNs = 100 * kNanosPerMilli;
// For a port that has answered to a call that is answered, over a slow way and encrypted.
constexpr int64_t kConnectNs = 5'000 * kNanosPerMilli;
constexpr int64_t kPortTimeoutMs = 1'000;

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string GoodbyeBytes() {
  proto::FromWorker message;
  message.mutable_goodbye();
  return message.SerializeAsString();
}

}  // namespace

ClientStream::ClientStream(Address address, std::shared_ptr<grpc::Channel> channel,
                           const GrpcControlOptions& options, EventLoop* timers, PortProbe* ports,
                           const std::string& join_secret, WorkerControlObserver* observer)
    : address_(std::move(address)),
      options_(options),
      timers_(timers),
      ports_(ports),
      observer_(observer),
      calls_(std::move(channel), join_secret),
      search_(options.resume_ms, options.refused_ms) {}

void ClientStream::Dial() {
  auto call = std::make_shared<ClientCall>(shared_from_this());
  std::optional<int64_t> received;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (course_ >= StreamCourse::kOver || call_ != nullptr) return;
    call->ready = !answered_;
    if (answered_) received = messages_.session().received();
    call_ = call;
  }
  calls_.Begin(*call, received);
  Step();
  if (!received.has_value()) return;
  // Behind a call that waits nobody asks the port, which may have answered as the last thing that
  // central's host did for a central that was killed.
  timers_->PostAfter(kConnectNs, [weak = std::weak_ptr(call)] {
    const std::shared_ptr<ClientCall> waiting = weak.lock();
    if (waiting != nullptr && !waiting->is_connected()) waiting->Cancel();
  });
}

absl::Status ClientStream::Send(WorkerMessage message) {
  const bool is_heartbeat = std::holds_alternative<Heartbeat>(message);
  proto::FromWorker wire = ToProto(std::move(message));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // Why: whether to dial again depends on it.
    if (!end_.ok()) return end_;
    if (course_ != StreamCourse::kOpen) return absl::UnavailableError("control stream: is closed");
    if (is_heartbeat) {
      messages_.queue().PushHeartbeat(wire);
    } else {
      RUNNEL_RETURN_IF_ERROR(messages_.queue().Push(std::move(wire)));
    }
  }
  if (is_heartbeat) LookForSilence();
  Step();
  return absl::OkStatus();
}

void ClientStream::LookForSilence() {
  SilenceWatch::Finding finding;
  std::shared_ptr<ClientCall> dead;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    finding = silence_.Look(NowNanos());
    if (finding.is_dead) dead = call_;
  }
  if (finding.is_new && options_.logger != nullptr) {
    options_.logger->Log(
        Severity::kWarning,
        absl::StrFormat("central at %s does not answer: nothing came for %.2f s, usually for %.2f "
                        "s; this worker keeps what it has and tries again, for up to %d s",
                        address_.ToString(), Seconds(finding.silence_ns), Seconds(finding.usual_ns),
                        options_.resume_ms / 1'000));
  }
  // Another connection may get through: this one may lead to an address that the host has no more.
  if (dead != nullptr) dead->Cancel();
}

void ClientStream::TellHeard(std::optional<int64_t> silence_ns) {
  if (!silence_ns.has_value() || options_.logger == nullptr) return;
  options_.logger->Log(
      Severity::kInfo,
      absl::StrFormat("central at %s answers again, %.2f s after it was last heard",
                      address_.ToString(), Seconds(*silence_ns)));
}

void ClientStream::Close() {
  bool is_broken = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (course_ != StreamCourse::kOpen) return;
    course_ = StreamCourse::kClosing;
    is_broken = call_ == nullptr;
  }
  if (is_broken) return End(absl::UnavailableError("control stream: the connection is broken"));
  timers_->PostAfter(options_.close_timeout_ms * kNanosPerMilli, [weak = weak_from_this()] {
    const std::shared_ptr<ClientStream> self = weak.lock();
    if (self == nullptr) return;
    std::shared_ptr<ClientCall> call;
    {
      std::lock_guard<std::mutex> lock(self->mutex_);
      call = self->call_;
    }
    if (call != nullptr) call->Cancel();
  });
  Step();
}

void ClientStream::WaitUntilDone() {
  std::unique_lock<std::mutex> lock(mutex_);
  done_changed_.wait(lock, [this] { return course_ == StreamCourse::kTold; });
}

void ClientStream::Step() {
  std::shared_ptr<ClientCall> call;
  std::optional<std::string> next;
  bool release = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    call = call_;
    if (call == nullptr || call->busy || call->released) return;
    if (call->ended) {
      release = call->released = true;
    } else if (!call->ready || call->writes_done) {
      return;
    } else if ((next = messages_.Next(NowNanos())).has_value()) {
      call->busy = true;
    } else if (is_closing() && messages_.queue().empty()) {
      next = GoodbyeBytes();
      call->busy = call->writes_done = true;
    } else {
      return;
    }
  }
  if (release) {
    call->Release();
  } else {
    call->Write(*next);
  }
}

void ClientStream::WriteEnded(ClientCall& call) {
  bool ends = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // The goodbye has left: our side ends with it.
    ends = call.writes_done && !call.ended && !std::exchange(call.closed, true);
    call.busy = ends;
  }
  if (ends) return call.EndWriting();
  Step();
}

void ClientStream::Connected(ClientCall& call, bool ok) {
  absl::Status status;
  std::optional<int64_t> silence_ns;
  if (ok) {
    const std::optional<int64_t> received = call.ReceivedByPeer();
    std::lock_guard<std::mutex> lock(mutex_);
    if (!call.ready && received.has_value()) status = messages_.session().Connect(*received);
    if (!call.ready && !received.has_value())
      status = absl::InvalidArgumentError("central does not say what it has received");
    answered_ = call.ready = true;
    search_.Find();
    silence_ns = silence_.Connect(NowNanos());
    if (!status.ok()) end_ = status;
  } else {
    std::lock_guard<std::mutex> lock(mutex_);
    call.ended = true;
  }
  TellHeard(silence_ns);
  if (!status.ok()) call.Cancel();
  Step();
}

absl::Status ClientStream::Receive(const grpc::ByteBuffer& bytes) {
  RUNNEL_ASSIGN_OR_RETURN(std::optional<proto::FromCentral> wire, incoming_.Add(ToBytes(bytes)));
  std::optional<int64_t> silence_ns;
  {
    const PartNews news = incoming_.TakeNews();
    std::lock_guard<std::mutex> lock(mutex_);
    silence_ns = silence_.Hear(NowNanos());
    RUNNEL_RETURN_IF_ERROR(messages_.Settle(news, NowNanos()));
  }
  TellHeard(silence_ns);
  Step();
  if (!wire.has_value()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(CentralMessage message, FromProto(*std::move(wire)));
  observer_->OnMessage(std::move(message));
  return absl::OkStatus();
}

void ClientStream::ReadEnded(ClientCall& call, absl::Status status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    call.ended = true;
    if (end_.ok()) end_ = std::move(status);
  }
  Step();
}

absl::Status ClientStream::EndStatusLocked(const grpc::Status& status) const {
  const std::string address = address_.ToString();
  if (!end_.ok()) return end_;
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) {
    return absl::InvalidArgumentError(status.error_message());
  }
  if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
    return absl::PermissionDeniedError(
        absl::StrCat("central at ", address, " refused: ", absl::CEscape(status.error_message())));
  }
  if (is_closing() && status.error_code() == grpc::StatusCode::CANCELLED) {
    return absl::UnavailableError(absl::StrCat("central at ", address, " did not end within ",
                                               options_.close_timeout_ms, " ms"));
  }
  return absl::UnavailableError(
      absl::StrCat("central at ", address, " is gone: ", status.error_message()));
}

bool ClientStream::IsBreakLocked(const grpc::Status& status) const {
  if (!answered_ || is_closing() || !end_.ok() || options_.resume_ms <= 0) return false;
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
      return true;
    default:
      return false;
  }
}

void ClientStream::Ended(ClientCall& call, const grpc::Status& status) {
  absl::Status end;
  bool is_break = false;
  std::shared_ptr<ClientCall> ended;  // destroyed without the lock, when this returns
  {
    std::lock_guard<std::mutex> lock(mutex_);
    end = EndStatusLocked(status);
    is_break = IsBreakLocked(status);
    if (is_break) search_.Break(NowNanos());
    if (call_.get() == &call) ended = std::move(call_);
    call_ = nullptr;
    silence_.Break();
  }
  if (!is_break) return End(end);
  AskPort();
}

void ClientStream::DialLater() {
  timers_->PostAfter(kRedialNs, [weak = weak_from_this()] {
    if (const std::shared_ptr<ClientStream> self = weak.lock()) self->AskPort();
  });
}

// Asked before it is dialled: gRPC does not tell a central that is gone from a way that is cut.
void ClientStream::AskPort() {
  bool too_long = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (course_ >= StreamCourse::kOver) return;
    too_long = search_.TakesTooLong(NowNanos());
  }
  if (too_long) {
    return End(absl::UnavailableError(absl::StrCat("central at ", address_.ToString(),
                                                   " is gone: nothing came for ",
                                                   options_.resume_ms / 1'000, " s")));
  }
  ports_->Ask(address_.host, address_.port, kPortTimeoutMs,
              [weak = weak_from_this()](PortAnswer answer) {
                if (const auto self = weak.lock()) self->PortAnswered(answer);
              });
}

void ClientStream::PortAnswered(PortAnswer answer) {
  bool is_gone = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_gone = search_.IsRefusedTooLong(answer, NowNanos());
  }
  if (is_gone) {
    return End(absl::UnavailableError(
        absl::StrCat("central at ", address_.ToString(), " is gone: nobody listens there")));
  }
  if (answer != PortAnswer::kAnswered) return DialLater();
  calls_.ExpectConnection();
  Dial();
}

void ClientStream::End(const absl::Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (course_ >= StreamCourse::kOver) return;
    course_ = StreamCourse::kOver;
    if (end_.ok()) end_ = status;
    messages_.queue().Clear();
  }
  observer_->OnClosed(status);
  std::lock_guard<std::mutex> lock(mutex_);
  course_ = StreamCourse::kTold;
  done_changed_.notify_all();  // under the lock, since the waiting thread may destroy this
}

}  // namespace runnel
