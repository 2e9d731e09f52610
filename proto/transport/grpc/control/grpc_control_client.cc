#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/base/status_macros.h"
#include "proto/transport/control/control_convert.h"
#include "proto/transport/control/control_parts.h"
#include "proto/transport/control/control_session.h"
#include "proto/transport/grpc/control/grpc_control_ends.h"
#include "proto/transport/grpc/listen_address.h"
#include "proto/transport/grpc/security/grpc_security.h"
#include "proto/transport/grpc/security/join_secret.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;
constexpr char kJoinMethod[] = "/runnel.proto.Control/Join";
// Before a broken stream is dialled again.
constexpr int64_t kRedialNs = 100 * kNanosPerMilli;
constexpr int64_t kPortTimeoutMs = 1'000;

class ClientStream;

// One connection of the stream. gRPC calls back one at a time for reads, for writes and at the end.
class ClientCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit ClientCall(std::shared_ptr<ClientStream> stream) : stream_(std::move(stream)) {}

  void Begin(grpc::GenericStub& stub, const std::map<std::string, std::string>& metadata,
             bool waits);
  void Write(const std::string& bytes) {
    write_ = ToBuffer(bytes);
    StartWrite(&write_);
  }
  void EndWriting() { StartWritesDone(); }
  void Release() { RemoveHold(); }
  void Cancel() { context_.TryCancel(); }
  bool is_connected() const { return connected_; }
  // What central has of this stream; none: it does not say.
  std::optional<int64_t> ReceivedByPeer() const;

  // Guarded by the stream's mutex.
  bool ready = false;        // messages may leave
  bool busy = false;         // a write or the end of writing is on its way
  bool writes_done = false;  // the goodbye has been started
  bool closed = false;       // and the end of writing behind it
  bool ended = false;        // nothing more may be started
  bool released = false;

 private:
  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnWritesDoneDone(bool ok) override { OnWriteDone(ok); }
  void OnDone(const grpc::Status& status) override;

  std::shared_ptr<ClientStream> stream_;
  std::atomic<bool> connected_{false};
  grpc::ClientContext context_;
  grpc::ByteBuffer read_;
  grpc::ByteBuffer write_;
};

// The stream, over one connection after the other. Nothing is started on a call with mutex_ held,
// since gRPC may call back at once.
class ClientStream final : public std::enable_shared_from_this<ClientStream> {
 public:
  ClientStream(Address address, std::shared_ptr<grpc::Channel> channel,
               const GrpcControlOptions& options, EventLoop* timers, PortProbe* ports,
               const std::string& join_secret, WorkerControlObserver* observer);

  // Dials, the first time or again.
  void Dial();
  absl::Status Send(WorkerMessage message);
  void Close();
  void WaitUntilDone();

  // Of the current call.
  void Connected(ClientCall& call, bool ok);
  absl::Status Receive(const grpc::ByteBuffer& bytes);
  void ReadEnded(ClientCall& call, absl::Status status);
  void WriteEnded(ClientCall& call);
  void Ended(ClientCall& call, const grpc::Status& status);

 private:
  // Starts what can be started next.
  void Step();
  std::optional<std::string> NextLocked();
  absl::Status EndStatusLocked(const grpc::Status& status) const;
  // Whether the connection is to blame, and another one may be tried.
  bool IsBreakLocked(const grpc::Status& status) const;
  void DialLater();
  void AskPort();
  void PortAnswered(PortAnswer answer);
  // The stream is over.
  void End(const absl::Status& status);
  int64_t NowNanos() const { return timers_->clock().NowNanos(); }

  const Address address_;
  const GrpcControlOptions options_;
  EventLoop* const timers_;
  PortProbe* const ports_;
  WorkerControlObserver* const observer_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  std::map<std::string, std::string> metadata_;
  IncomingMessages<proto::FromCentral> incoming_;  // of the reading callback

  std::mutex mutex_;  // guards what follows
  std::condition_variable done_changed_;
  OutgoingMessages<proto::FromWorker> outgoing_;
  ControlSession session_;
  std::shared_ptr<ClientCall> call_;  // until it is done; null: the connection broke
  absl::Status end_;                  // not OK: central sent bad bytes
  bool began_ = false;                // the first message has left
  bool answered_ = false;             // by central, ever
  bool closing_ = false;              // end our side when all is sent
  int64_t broken_ns_ = 0;             // since when; 0: it stands
  int64_t refused_ns_ = 0;  // since when nobody listens at central's port; 0: somebody does
  bool ended_ = false;
  bool done_ = false;
};

std::string RandomToken() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

std::string AckBytes(int64_t messages) {
  proto::FromWorker message;
  message.mutable_received()->set_messages(messages);
  return message.SerializeAsString();
}

std::string GoodbyeBytes() {
  proto::FromWorker message;
  message.mutable_goodbye();
  return message.SerializeAsString();
}

// ---- one connection

void ClientCall::Begin(grpc::GenericStub& stub, const std::map<std::string, std::string>& metadata,
                       bool waits) {
  for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
  context_.set_wait_for_ready(waits);
  stub.PrepareBidiStreamingCall(&context_, kJoinMethod, grpc::StubOptions(), this);
  AddHold();  // writes are started from outside the callbacks
  StartCall();
}

std::optional<int64_t> ClientCall::ReceivedByPeer() const {
  const auto& metadata = context_.GetServerInitialMetadata();
  const auto found = metadata.find(kReceivedKey);
  int64_t received = 0;
  if (found == metadata.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &received))
    return std::nullopt;
  return received;
}

void ClientCall::OnReadInitialMetadataDone(bool ok) {
  connected_ = ok;
  stream_->Connected(*this, ok);
  if (ok) StartRead(&read_);
}

void ClientCall::OnReadDone(bool ok) {
  const absl::Status status = ok ? stream_->Receive(read_) : absl::OkStatus();
  if (ok && status.ok()) return StartRead(&read_);
  if (ok) Cancel();
  stream_->ReadEnded(*this, status);
}

void ClientCall::OnWriteDone(bool) { stream_->WriteEnded(*this); }

void ClientCall::OnDone(const grpc::Status& status) {
  // The stream lets go of this call, which must not end here.
  const std::shared_ptr<ClientStream> stream = std::move(stream_);
  stream->Ended(*this, status);
}

// ---- the stream

ClientStream::ClientStream(Address address, std::shared_ptr<grpc::Channel> channel,
                           const GrpcControlOptions& options, EventLoop* timers, PortProbe* ports,
                           const std::string& join_secret, WorkerControlObserver* observer)
    : address_(std::move(address)),
      options_(options),
      timers_(timers),
      ports_(ports),
      observer_(observer),
      channel_(channel),
      stub_(std::move(channel)) {
  if (!join_secret.empty()) metadata_[kJoinSecretKey] = join_secret;
  metadata_[kSessionKey] = RandomToken();
}

void ClientStream::Dial() {
  auto call = std::make_shared<ClientCall>(shared_from_this());
  bool is_first = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ended_ || call_ != nullptr) return;
    is_first = !answered_;
    call->ready = is_first;
    if (!is_first) metadata_[kReceivedKey] = absl::StrCat(session_.received());
    call_ = call;
  }
  call->Begin(stub_, metadata_, !is_first);
  Step();
  if (is_first) return;
  // It waits until central can be had, and not for ever.
  timers_->PostAfter(options_.resume_ms * kNanosPerMilli, [weak = std::weak_ptr(call)] {
    const std::shared_ptr<ClientCall> waiting = weak.lock();
    if (waiting != nullptr && !waiting->is_connected()) waiting->Cancel();
  });
}

absl::Status ClientStream::Send(WorkerMessage message) {
  const bool is_heartbeat = std::holds_alternative<Heartbeat>(message);
  proto::FromWorker wire = ToProto(std::move(message));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_ || ended_ || !end_.ok())
      return absl::UnavailableError("control stream: is closed");
    if (is_heartbeat) {
      outgoing_.PushHeartbeat(wire);
    } else {
      RUNNEL_RETURN_IF_ERROR(outgoing_.Push(std::move(wire)));
    }
  }
  Step();
  return absl::OkStatus();
}

void ClientStream::Close() {
  bool is_broken = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_ || ended_) return;
    closing_ = true;
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
  done_changed_.wait(lock, [this] { return done_; });
}

std::optional<std::string> ClientStream::NextLocked() {
  if (const std::optional<int64_t> received = session_.DueAck()) return AckBytes(*received);
  if (began_) {
    if (std::string heartbeat = outgoing_.TakeHeartbeat(); !heartbeat.empty()) return heartbeat;
  }
  if (std::optional<std::string> again = session_.NextAgain(); again.has_value()) return again;
  std::optional<std::string> next = outgoing_.Next(NowNanos());
  if (!next.has_value()) return std::nullopt;
  began_ = true;
  session_.Keep(*next);
  return next;
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
    } else if ((next = NextLocked()).has_value()) {
      call->busy = true;
    } else if (closing_ && outgoing_.empty()) {
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
  if (ok) {
    const std::optional<int64_t> received = call.ReceivedByPeer();
    std::lock_guard<std::mutex> lock(mutex_);
    if (!call.ready && received.has_value()) status = session_.Connect(*received);
    if (!call.ready && !received.has_value())
      status = absl::InvalidArgumentError("central does not say what it has received");
    answered_ = call.ready = true;
    broken_ns_ = refused_ns_ = 0;
    if (!status.ok()) end_ = status;
  } else {
    std::lock_guard<std::mutex> lock(mutex_);
    call.ended = true;
  }
  if (!status.ok()) call.Cancel();
  Step();
}

absl::Status ClientStream::Receive(const grpc::ByteBuffer& bytes) {
  RUNNEL_ASSIGN_OR_RETURN(std::optional<proto::FromCentral> wire, incoming_.Add(ToBytes(bytes)));
  {
    const PartNews news = incoming_.TakeNews();
    std::lock_guard<std::mutex> lock(mutex_);
    for (int64_t i = 0; i < news.counted; ++i) session_.Take();
    if (news.received.has_value()) RUNNEL_RETURN_IF_ERROR(session_.Acknowledge(*news.received));
    RUNNEL_RETURN_IF_ERROR(outgoing_.Settle(news, NowNanos()));
  }
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
  if (closing_ && status.error_code() == grpc::StatusCode::CANCELLED) {
    return absl::UnavailableError(absl::StrCat("central at ", address, " did not end within ",
                                               options_.close_timeout_ms, " ms"));
  }
  return absl::UnavailableError(
      absl::StrCat("central at ", address, " is gone: ", status.error_message()));
}

bool ClientStream::IsBreakLocked(const grpc::Status& status) const {
  if (!answered_ || closing_ || !end_.ok() || options_.resume_ms <= 0) return false;
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
    if (is_break && broken_ns_ == 0) broken_ns_ = NowNanos();
    if (call_.get() == &call) ended = std::move(call_);
    call_ = nullptr;
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
    if (ended_) return;
    too_long = NowNanos() - broken_ns_ > options_.resume_ms * kNanosPerMilli;
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
    const int64_t now_ns = NowNanos();
    if (answer != PortAnswer::kRefused) refused_ns_ = 0;
    if (answer == PortAnswer::kRefused && refused_ns_ == 0) refused_ns_ = now_ns;
    is_gone = refused_ns_ != 0 && now_ns - refused_ns_ > options_.refused_ms * kNanosPerMilli;
  }
  if (is_gone) {
    return End(absl::UnavailableError(
        absl::StrCat("central at ", address_.ToString(), " is gone: nobody listens there")));
  }
  if (answer != PortAnswer::kAnswered) return DialLater();
  grpc::experimental::ChannelResetConnectionBackoff(channel_.get());
  Dial();
}

void ClientStream::End(const absl::Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(ended_, true)) return;
    outgoing_.Clear();
  }
  observer_->OnClosed(status);
  std::lock_guard<std::mutex> lock(mutex_);
  done_ = true;
  done_changed_.notify_all();  // with the lock: the one who waits may destroy this
}

class GrpcWorkerControl final : public WorkerControl {
 public:
  GrpcWorkerControl(Address central, std::shared_ptr<ClientStream> stream)
      : central_(std::move(central)), stream_(std::move(stream)) {}
  ~GrpcWorkerControl() override {
    stream_->Close();
    stream_->WaitUntilDone();
  }
  absl::Status Send(WorkerMessage message) override { return stream_->Send(std::move(message)); }
  absl::StatusOr<std::string> LocalHost() const override { return LocalHostTowards(central_); }
  void Close() override { stream_->Close(); }

 private:
  const Address central_;
  std::shared_ptr<ClientStream> stream_;
};

grpc::ChannelArguments ArgumentsFor(const GrpcControlOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a proxy of the environment is not meant
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // one connection a worker
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 3'000);  // what one attempt may take
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(options.keepalive_ms));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(options.keepalive_timeout_ms));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerControl>> ConnectGrpc(const std::string& address,
                                                           int64_t timeout_ms,
                                                           const GrpcControlOptions& options,
                                                           EventLoop* timers, PortProbe* ports,
                                                           WorkerControlObserver* observer) {
  RUNNEL_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  const bool encrypts = options.security.encrypts();
  RUNNEL_RETURN_IF_ERROR(CheckDialAddress(parsed, options.allow_non_loopback || encrypts));
  const std::string target = parsed.ToString();
  if (parsed.port == 0) {
    return absl::InvalidArgumentError(absl::StrCat("address '", address, "': needs a port"));
  }
  grpc::ChannelArguments arguments = ArgumentsFor(options);
  const auto credentials = ChannelCredentials(options.security, CentralSubject(), arguments);
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(target, credentials, arguments);
  const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms);
  if (!channel->WaitForConnected(deadline)) {
    return absl::UnavailableError(absl::StrCat(
        "no central answers at ", target, " within ", timeout_ms, " ms",
        encrypts ? ", none of this worker's cluster at least"
                 : "; where `runnel-central init` was called, a worker must --join first"));
  }
  // Read now: central has made the file when it listens.
  std::string secret;
  if (!encrypts && parsed.is_loopback() && !options.security.secrets_folder.empty())
    secret = ReadJoinSecret(options.security.secrets_folder, parsed.port).value_or("");
  auto stream = std::make_shared<ClientStream>(parsed, std::move(channel), options, timers, ports,
                                               secret, observer);
  stream->Dial();
  return std::make_unique<GrpcWorkerControl>(parsed, std::move(stream));
}

}  // namespace runnel
