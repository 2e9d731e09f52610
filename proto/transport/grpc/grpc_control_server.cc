#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/control.grpc.pb.h"
#include "proto/transport/control/control_convert.h"
#include "proto/transport/control/control_parts.h"
#include "proto/transport/grpc/grpc_control_ends.h"
#include "proto/transport/grpc/listen_address.h"

namespace runnel {
namespace {

using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

constexpr int64_t kNanosPerMilli = 1'000'000;

absl::Status NoSuchStream(ConnectionId id) {
  return absl::NotFoundError(absl::StrCat("control stream ", id.value(), ": is not there"));
}

class ServerStream;

// The streams of one listener. Thread-safe.
class Streams : public std::enable_shared_from_this<Streams> {
 public:
  Streams(const GrpcControlOptions& options, EventLoop* timers, CentralControlObserver* observer)
      : options_(options), timers_(timers), observer_(observer) {}

  const GrpcControlOptions& options() const { return options_; }
  EventLoop& timers() { return *timers_; }
  CentralControlObserver& observer() { return *observer_; }

  // The reactor of a new call, which may be one that only refuses it.
  Reactor* Add(grpc::CallbackServerContext* context);
  void Remove(ConnectionId id);
  std::shared_ptr<ServerStream> Find(ConnectionId id);
  // Accepts no more and closes all in order.
  void CloseAll();
  void WaitUntilEmpty();

 private:
  const GrpcControlOptions options_;
  EventLoop* timers_;
  CentralControlObserver* observer_;
  std::mutex mutex_;
  std::condition_variable removed_;
  std::map<ConnectionId, std::shared_ptr<ServerStream>> streams_;  // guarded by mutex_
  ConnectionId last_id_;                                           // guarded by mutex_
  bool closing_ = false;                                           // guarded by mutex_
};

// One call. gRPC calls back one at a time for reads, for writes and at the end; nothing is started
// on the call with mutex_ held, since gRPC may call back at once.
class ServerStream final : public Reactor, public std::enable_shared_from_this<ServerStream> {
 public:
  ServerStream(ConnectionId id, grpc::CallbackServerContext* context,
               std::shared_ptr<Streams> streams)
      : id_(id), streams_(std::move(streams)), context_(context) {}

  void Begin();
  absl::Status Send(CentralMessage message);
  TransferProgress Transfer();
  void Close();

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  absl::Status Receive();
  int64_t NowNanos() const { return streams_->timers().clock().NowNanos(); }
  // Ends the call with this status as soon as no write is on its way.
  void Fail(absl::Status status);
  // Ends the call when all that is queued has been written.
  void EndInOrder();
  // Starts what can be started next.
  void Step();
  void CutOffAfterTimeout();

  const ConnectionId id_;
  const std::shared_ptr<Streams> streams_;        // a timer may hold a stream that has ended
  IncomingMessages<proto::FromWorker> incoming_;  // of the reading callback
  grpc::ByteBuffer read_;
  grpc::ByteBuffer write_;
  std::atomic<bool> joined_{false};
  std::atomic<int64_t> held_bytes_{0};  // incoming_'s

  std::mutex mutex_;                      // guards what follows
  grpc::CallbackServerContext* context_;  // nullptr once the call is done
  OutgoingMessages<proto::FromCentral> outgoing_;
  absl::Status end_;      // not OK: why we end it
  bool closing_ = false;  // end it when outgoing_ is empty
  bool deaf_ = false;     // we closed it: drop what comes in
  bool writing_ = false;
  bool finished_ = false;  // Finish has been called
};

void ServerStream::Begin() {
  streams_->timers().PostAfter(
      streams_->options().hello_deadline_ms * kNanosPerMilli, [weak = weak_from_this()] {
        const std::shared_ptr<ServerStream> self = weak.lock();
        if (self == nullptr || self->joined_) return;
        self->Fail(absl::InvalidArgumentError(absl::StrCat(
            "hello: did not come within ", self->streams_->options().hello_deadline_ms, " ms")));
      });
  StartRead(&read_);
}

absl::Status ServerStream::Send(CentralMessage message) {
  const bool takes_back = std::holds_alternative<AbortPlan>(message);
  proto::FromCentral wire = ToProto(std::move(message));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (context_ == nullptr) return NoSuchStream(id_);
    if (closing_ || finished_ || !end_.ok()) {
      return absl::UnavailableError("control stream: is closed");
    }
    // A stage that is still on its way is of no more use.
    if (takes_back) outgoing_.DropBulk();
    RUNNEL_RETURN_IF_ERROR(outgoing_.Push(std::move(wire)));
  }
  Step();
  return absl::OkStatus();
}

TransferProgress ServerStream::Transfer() {
  std::lock_guard<std::mutex> lock(mutex_);
  TransferProgress progress = outgoing_.progress();
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
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_ || finished_) return;
    closing_ = true;
  }
  CutOffAfterTimeout();
  Step();
}

void ServerStream::Fail(absl::Status status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (finished_ || !end_.ok()) return;
    end_ = std::move(status);
    outgoing_.Clear();
  }
  CutOffAfterTimeout();
  Step();
}

void ServerStream::CutOffAfterTimeout() {
  streams_->timers().PostAfter(streams_->options().close_timeout_ms * kNanosPerMilli,
                               [weak = weak_from_this()] {
                                 const std::shared_ptr<ServerStream> self = weak.lock();
                                 if (self == nullptr) return;
                                 std::lock_guard<std::mutex> lock(self->mutex_);
                                 if (self->context_ != nullptr) self->context_->TryCancel();
                               });
}

void ServerStream::Step() {
  std::optional<std::string> next;
  absl::Status end;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (writing_ || finished_) return;
    if (end_.ok()) next = outgoing_.Next(NowNanos());
    if (next.has_value()) {
      writing_ = true;
    } else if ((closing_ && outgoing_.empty()) || !end_.ok()) {
      finished_ = true;
      end = end_;
    } else {
      return;
    }
  }
  if (next.has_value()) {
    write_ = ToBuffer(*next);
    StartWrite(&write_);
  } else {
    Finish(ToGrpc(end));
  }
}

void ServerStream::OnWriteDone(bool ok) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    if (!ok) outgoing_.Clear();  // the call is broken, its reading ends as well
  }
  Step();
}

void ServerStream::OnReadDone(bool ok) {
  if (!ok) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      outgoing_.SendWithoutWaiting();
    }
    EndInOrder();
    return Step();
  }
  absl::Status status = Receive();
  if (status.ok()) {
    StartRead(&read_);
  } else {
    Fail(std::move(status));
  }
}

absl::Status ServerStream::Receive() {
  RUNNEL_ASSIGN_OR_RETURN(std::optional<proto::FromWorker> wire, incoming_.Add(ToBytes(read_)));
  held_bytes_ = incoming_.held_bytes();
  bool is_deaf = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!end_.ok()) return end_;
    RUNNEL_RETURN_IF_ERROR(outgoing_.Settle(incoming_.TakeNews(), NowNanos()));
    is_deaf = deaf_;
  }
  Step();
  if (is_deaf) return absl::OkStatus();
  if (!joined_ && !(wire.has_value() && wire->has_hello())) {
    return absl::InvalidArgumentError("hello: is not the first message");
  }
  if (!wire.has_value()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(WorkerMessage message, FromProto(*std::move(wire)));
  if (!joined_) {
    joined_ = true;
    streams_->observer().OnJoined(id_);
  }
  streams_->observer().OnMessage(id_, std::move(message));
  return absl::OkStatus();
}

void ServerStream::OnDone() {
  const std::shared_ptr<ServerStream> self = shared_from_this();
  absl::Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    finished_ = true;
    status = end_;
    if (status.ok() && context_->IsCancelled()) {
      status = absl::UnavailableError("control stream: the connection broke");
    }
    context_ = nullptr;
  }
  if (joined_) streams_->observer().OnGone(id_, status);
  streams_->Remove(id_);
}

// Ends a call that is not wanted.
class Refusal final : public Reactor {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpc(status)); }

 private:
  void OnDone() override { delete this; }
};

Reactor* Streams::Add(grpc::CallbackServerContext* context) {
  std::shared_ptr<ServerStream> stream;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_) return new Refusal(absl::UnavailableError("central ends"));
    if (streams_.size() >= static_cast<size_t>(options_.max_streams)) {
      return new Refusal(absl::ResourceExhaustedError(
          absl::StrCat("central has ", streams_.size(), " control streams already")));
    }
    last_id_ = last_id_.next();
    stream = std::make_shared<ServerStream>(last_id_, context, shared_from_this());
    streams_.emplace(last_id_, stream);
  }
  stream->Begin();
  return stream.get();
}

void Streams::Remove(ConnectionId id) {
  std::lock_guard<std::mutex> lock(mutex_);
  streams_.erase(id);
  removed_.notify_all();
}

std::shared_ptr<ServerStream> Streams::Find(ConnectionId id) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto at = streams_.find(id);
  return at == streams_.end() ? nullptr : at->second;
}

void Streams::CloseAll() {
  std::vector<std::shared_ptr<ServerStream>> streams;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
    for (const auto& [id, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) stream->Close();
}

void Streams::WaitUntilEmpty() {
  std::unique_lock<std::mutex> lock(mutex_);
  removed_.wait(lock, [this] { return streams_.empty(); });
}

class JoinService final
    : public proto::Control::WithRawCallbackMethod_Join<proto::Control::Service> {
 public:
  explicit JoinService(Streams* streams) : streams_(streams) {}
  Reactor* Join(grpc::CallbackServerContext* context) override { return streams_->Add(context); }

 private:
  Streams* streams_;
};

class GrpcCentralControl final : public CentralControl {
 public:
  GrpcCentralControl(const GrpcControlOptions& options, EventLoop* timers,
                     CentralControlObserver* observer)
      : streams_(std::make_shared<Streams>(options, timers, observer)), service_(streams_.get()) {}
  ~GrpcCentralControl() override;

  absl::Status Listen(const std::string& address);
  std::string address() const override { return address_.ToString(); }
  absl::Status Send(ConnectionId id, CentralMessage message) override;
  TransferProgress Transfer(ConnectionId id) override;
  void Close(ConnectionId id) override;

 private:
  const std::shared_ptr<Streams> streams_;
  JoinService service_;
  Address address_;
  std::unique_ptr<grpc::Server> server_;
};

absl::Status GrpcCentralControl::Listen(const std::string& text) {
  const GrpcControlOptions& options = streams_->options();
  RUNNEL_ASSIGN_OR_RETURN(Address address, ToListenAddress(text, options.allow_non_loopback));
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(options.keepalive_ms));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             static_cast<int>(options.keepalive_timeout_ms));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Workers ping as well; without this gRPC takes it for an attack after the second one.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  int port = 0;
  builder.AddListeningPort(address.ToString(), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("cannot listen on ", address.ToString(), ": the port is in use"));
  }
  address.port = port;
  address_ = std::move(address);
  return absl::OkStatus();
}

GrpcCentralControl::~GrpcCentralControl() {
  if (server_ == nullptr) return;
  streams_->CloseAll();
  // Cancels at the time-out what is still there.
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::milliseconds(streams_->options().close_timeout_ms));
  streams_->WaitUntilEmpty();
}

absl::Status GrpcCentralControl::Send(ConnectionId id, CentralMessage message) {
  const std::shared_ptr<ServerStream> stream = streams_->Find(id);
  if (stream == nullptr) return NoSuchStream(id);
  return stream->Send(std::move(message));
}

TransferProgress GrpcCentralControl::Transfer(ConnectionId id) {
  const std::shared_ptr<ServerStream> stream = streams_->Find(id);
  return stream == nullptr ? TransferProgress() : stream->Transfer();
}

void GrpcCentralControl::Close(ConnectionId id) {
  const std::shared_ptr<ServerStream> stream = streams_->Find(id);
  if (stream != nullptr) stream->Close();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CentralControl>> ListenGrpc(const std::string& address,
                                                           const GrpcControlOptions& options,
                                                           EventLoop* timers,
                                                           CentralControlObserver* observer) {
  auto central = std::make_unique<GrpcCentralControl>(options, timers, observer);
  RUNNEL_RETURN_IF_ERROR(central->Listen(address));
  return central;
}

}  // namespace runnel
