#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/base/status_macros.h"
#include "proto/transport/control/control_convert.h"
#include "proto/transport/control/control_parts.h"
#include "proto/transport/grpc/grpc_control_ends.h"
#include "proto/transport/grpc/grpc_security.h"
#include "proto/transport/grpc/join_secret.h"
#include "proto/transport/grpc/listen_address.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;
constexpr char kJoinMethod[] = "/runnel.proto.Control/Join";

// The call. gRPC calls back one at a time for reads, for writes and at the end; nothing is started
// on the call with mutex_ held, since gRPC may call back at once.
class ClientStream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public std::enable_shared_from_this<ClientStream> {
 public:
  ClientStream(std::string address, std::shared_ptr<grpc::Channel> channel,
               const GrpcControlOptions& options, EventLoop* timers, const std::string& join_secret,
               WorkerControlObserver* observer)
      : address_(std::move(address)),
        options_(options),
        timers_(timers),
        observer_(observer),
        stub_(std::move(channel)) {
    if (!join_secret.empty()) context_.AddMetadata(kJoinSecretKey, join_secret);
  }

  void Begin();
  absl::Status Send(WorkerMessage message);
  void Close();
  void WaitUntilDone();

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnWritesDoneDone(bool ok) override { OnWriteDone(ok); }
  void OnDone(const grpc::Status& status) override;

  absl::Status Receive();
  // Starts what can be started next.
  void Step();
  absl::Status EndStatusLocked(const grpc::Status& status) const;

  const std::string address_;
  const GrpcControlOptions options_;
  EventLoop* const timers_;
  WorkerControlObserver* const observer_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  IncomingMessages<proto::FromCentral> incoming_;  // of the reading callback
  grpc::ByteBuffer read_;
  grpc::ByteBuffer write_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable done_changed_;
  OutgoingMessages<proto::FromWorker> outgoing_;
  absl::Status end_;          // not OK: central sent bad bytes
  bool closing_ = false;      // end our side when outgoing_ is empty
  bool busy_ = false;         // a write or the end of writing is on its way
  bool writes_done_ = false;  // the end of writing has been started
  bool read_ended_ = false;   // nothing more may be started
  bool hold_released_ = false;
  bool done_ = false;
};

void ClientStream::Begin() {
  stub_.PrepareBidiStreamingCall(&context_, kJoinMethod, grpc::StubOptions(), this);
  AddHold();  // writes are started from outside the callbacks
  StartRead(&read_);
  StartCall();
}

absl::Status ClientStream::Send(WorkerMessage message) {
  proto::FromWorker wire = ToProto(std::move(message));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_ || read_ended_ || !end_.ok()) {
      return absl::UnavailableError("control stream: is closed");
    }
    RUNNEL_RETURN_IF_ERROR(outgoing_.Push(std::move(wire)));
  }
  Step();
  return absl::OkStatus();
}

void ClientStream::Close() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_ || done_) return;
    closing_ = true;
  }
  timers_->PostAfter(options_.close_timeout_ms * kNanosPerMilli, [weak = weak_from_this()] {
    const std::shared_ptr<ClientStream> self = weak.lock();
    if (self != nullptr) self->context_.TryCancel();
  });
  Step();
}

void ClientStream::WaitUntilDone() {
  std::unique_lock<std::mutex> lock(mutex_);
  done_changed_.wait(lock, [this] { return done_; });
}

void ClientStream::Step() {
  std::optional<std::string> next;
  bool release = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (busy_ || hold_released_) return;
    if (read_ended_) {
      release = hold_released_ = true;
    } else if ((next = outgoing_.Next(timers_->clock().NowNanos())).has_value()) {
      busy_ = true;
    } else if (closing_ && !writes_done_ && outgoing_.empty()) {
      busy_ = writes_done_ = true;
    } else {
      return;
    }
  }
  if (release) {
    RemoveHold();
  } else if (next.has_value()) {
    write_ = ToBuffer(*next);
    StartWrite(&write_);
  } else {
    StartWritesDone();
  }
}

void ClientStream::OnWriteDone(bool ok) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    busy_ = false;
    if (!ok) outgoing_.Clear();  // the call is broken, its reading ends as well
  }
  Step();
}

void ClientStream::OnReadDone(bool ok) {
  absl::Status status;
  if (ok) status = Receive();
  if (ok && status.ok()) return StartRead(&read_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    read_ended_ = true;
    end_ = std::move(status);
    outgoing_.Clear();
  }
  if (ok) context_.TryCancel();
  Step();
}

absl::Status ClientStream::Receive() {
  RUNNEL_ASSIGN_OR_RETURN(std::optional<proto::FromCentral> wire, incoming_.Add(ToBytes(read_)));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    RUNNEL_RETURN_IF_ERROR(outgoing_.Settle(incoming_.TakeNews(), timers_->clock().NowNanos()));
  }
  Step();
  if (!wire.has_value()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(CentralMessage message, FromProto(*std::move(wire)));
  observer_->OnMessage(std::move(message));
  return absl::OkStatus();
}

absl::Status ClientStream::EndStatusLocked(const grpc::Status& status) const {
  if (!end_.ok()) return end_;
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) {
    return absl::InvalidArgumentError(status.error_message());
  }
  if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
    return absl::PermissionDeniedError(
        absl::StrCat("central at ", address_, " refused: ", absl::CEscape(status.error_message())));
  }
  if (closing_ && status.error_code() == grpc::StatusCode::CANCELLED) {
    return absl::UnavailableError(absl::StrCat("central at ", address_, " did not end within ",
                                               options_.close_timeout_ms, " ms"));
  }
  return absl::UnavailableError(
      absl::StrCat("central at ", address_, " is gone: ", status.error_message()));
}

void ClientStream::OnDone(const grpc::Status& status) {
  absl::Status end;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    end = EndStatusLocked(status);
  }
  observer_->OnClosed(end);
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
                                                           EventLoop* timers,
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
  auto stream =
      std::make_shared<ClientStream>(target, std::move(channel), options, timers, secret, observer);
  stream->Begin();
  return std::make_unique<GrpcWorkerControl>(parsed, std::move(stream));
}

}  // namespace runnel
