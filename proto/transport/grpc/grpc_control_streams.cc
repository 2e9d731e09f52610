#include "proto/transport/grpc/grpc_control_streams.h"

#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/sha256.h"
#include "proto/transport/control/control_convert.h"
#include "proto/transport/grpc/grpc_security.h"

namespace runnel {
namespace {

using Reactor = Streams::Reactor;

constexpr int64_t kNanosPerMilli = 1'000'000;
// Of a worker's first message.
constexpr size_t kMaxHelloBytes = 4 << 10;

absl::Status NoSuchStream(ConnectionId id) {
  return absl::NotFoundError(absl::StrCat("control stream ", id.value(), ": is not there"));
}

}  // namespace

// One call. gRPC calls back one at a time for reads, for writes and at the end; nothing is started
// on the call with mutex_ held, since gRPC may call back at once.
class ServerStream final : public Reactor, public std::enable_shared_from_this<ServerStream> {
 public:
  // peer: who dials, if a certificate says so.
  ServerStream(ConnectionId id, grpc::CallbackServerContext* context,
               std::optional<CertificateInfo> peer, std::shared_ptr<Streams> streams)
      : id_(id), peer_(std::move(peer)), streams_(std::move(streams)), context_(context) {}

  const std::optional<CertificateInfo>& peer() const { return peer_; }
  bool joined() const { return joined_; }
  void Begin();
  absl::Status Send(CentralMessage message);
  TransferProgress Transfer();
  void Close();
  // Ends the call with this status as soon as no write is on its way.
  void Fail(absl::Status status);

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  absl::Status Receive();
  // The first message.
  absl::Status Join(const WorkerMessage& hello);
  int64_t NowNanos() const { return streams_->timers().clock().NowNanos(); }
  // Ends the call when all that is queued has been written.
  void EndInOrder();
  // Starts what can be started next.
  void Step();
  void CutOffAfterTimeout();

  const ConnectionId id_;
  const std::optional<CertificateInfo> peer_;
  const std::shared_ptr<Streams> streams_;        // a timer may hold a stream that has ended
  IncomingMessages<proto::FromWorker> incoming_;  // of the reading callback
  grpc::ByteBuffer read_;
  grpc::ByteBuffer write_;
  std::atomic<bool> joined_{false};
  std::atomic<bool> welcomed_{false};
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
  if (std::holds_alternative<Welcome>(message)) welcomed_ = true;
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
  if (!joined_) streams_->LogRefusal(end_.message());
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

absl::Status ServerStream::Join(const WorkerMessage& message) {
  const auto& hello = std::get<WorkerHello>(message);
  if (peer_.has_value() && hello.name != peer_->subject.name) {
    return absl::PermissionDeniedError(absl::StrCat(
        "hello: says to be ", hello.name, ", the certificate is that of ", peer_->subject.name));
  }
  joined_ = true;
  streams_->observer().OnJoined(id_);
  return absl::OkStatus();
}

absl::Status ServerStream::Receive() {
  if (!joined_ && read_.Length() > kMaxHelloBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("hello: ", read_.Length(), " bytes are over ", kMaxHelloBytes));
  }
  incoming_.SetLimit(welcomed_ ? streams_->max_state_bytes() : 0);
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
  RUNNEL_RETURN_IF_ERROR(CheckWireSize(*wire, read_.Length()));
  RUNNEL_ASSIGN_OR_RETURN(WorkerMessage message, FromProto(*std::move(wire)));
  if (!joined_) RUNNEL_RETURN_IF_ERROR(Join(message));
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

namespace {

// Ends a call that is not wanted.
class Refusal final : public Reactor {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpc(status)); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

void Streams::RequireSecret(std::string secret) {
  std::lock_guard<std::mutex> lock(mutex_);
  secret_ = std::move(secret);
}

void Streams::LogRefusal(absl::string_view why) {
  if (options_.security.refusals != nullptr)
    options_.security.refusals->Refused(absl::StrCat("control stream: ", why));
}

absl::Status Streams::CheckSecret(const grpc::CallbackServerContext& context) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!secret_.has_value()) return absl::OkStatus();
  const auto shown = context.client_metadata().find(kJoinSecretKey);
  if (shown != context.client_metadata().end() && !secret_->empty() &&
      EqualSecrets(*secret_, {shown->second.data(), shown->second.size()})) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "a worker or an operator showed no join secret: where streams are not encrypted, central and "
      "its workers are started by the same user of the host, who alone reads ",
      options_.security.secrets_folder));
}

absl::StatusOr<CertificateInfo> Streams::CheckRole(const grpc::CallbackServerContext& context,
                                                   Role role) {
  if (!options_.security.encrypts())
    return absl::PermissionDeniedError("only where streams are encrypted (`runnel-central init`)");
  absl::StatusOr<CertificateInfo> peer = PeerOf(*context.auth_context(), options_.security);
  if (peer.ok() && peer->subject.role != role) {
    peer = absl::PermissionDeniedError(
        absl::StrCat("the certificate of ", peer->subject.ToString(), " does not allow this call"));
  }
  if (!peer.ok()) LogRefusal(peer.status().message());
  return peer;
}

absl::Status Streams::CheckOperator(const grpc::CallbackServerContext& context) {
  if (options_.security.encrypts()) return CheckRole(context, Role::kOperator).status();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!secret_.has_value()) {
      return absl::PermissionDeniedError(
          "a central on an open network takes no orders: `runnel-central init` makes certificates");
    }
  }
  const absl::Status status = CheckSecret(context);
  if (!status.ok()) LogRefusal(status.message());
  return status;
}

void Streams::CheckPeers() {
  constexpr int64_t kEveryNanos = 1'000 * kNanosPerMilli;
  std::vector<std::shared_ptr<ServerStream>> streams;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_ || options_.security.check_peer == nullptr) return;
    for (const auto& [id, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) {
    if (!stream->peer().has_value()) continue;
    const absl::Status status = options_.security.check_peer(*stream->peer());
    if (status.ok()) continue;
    LogRefusal(status.message());
    stream->Fail(status);
  }
  timers_->PostAfter(kEveryNanos, [weak = weak_from_this()] {
    if (const std::shared_ptr<Streams> self = weak.lock()) self->CheckPeers();
  });
}

std::shared_ptr<ServerStream> Streams::OneStrangerTooMany() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<ServerStream> oldest;
  int strangers = 0;
  for (const auto& [id, stream] : streams_) {
    if (stream->joined()) continue;
    ++strangers;
    if (oldest == nullptr) oldest = stream;
  }
  return strangers > options_.max_strangers ? oldest : nullptr;
}

Reactor* Streams::Add(grpc::CallbackServerContext* context) {
  std::shared_ptr<ServerStream> stream;
  std::optional<CertificateInfo> peer;
  if (options_.security.encrypts()) {
    absl::StatusOr<CertificateInfo> worker = CheckRole(*context, Role::kWorker);
    if (!worker.ok()) return new Refusal(worker.status());
    peer = *std::move(worker);
  } else if (absl::Status status = CheckSecret(*context); !status.ok()) {
    LogRefusal(status.message());
    return new Refusal(status);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_) return new Refusal(absl::UnavailableError("central ends"));
    if (streams_.size() >= static_cast<size_t>(options_.max_streams)) {
      return new Refusal(absl::ResourceExhaustedError(
          absl::StrCat("central has ", streams_.size(), " control streams already")));
    }
    last_id_ = last_id_.next();
    stream = std::make_shared<ServerStream>(last_id_, context, std::move(peer), shared_from_this());
    streams_.emplace(last_id_, stream);
  }
  if (const std::shared_ptr<ServerStream> stranger = OneStrangerTooMany())
    stranger->Fail(absl::ResourceExhaustedError("too many streams that said no hello yet"));
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

absl::Status Streams::Send(ConnectionId id, CentralMessage message) {
  const std::shared_ptr<ServerStream> stream = Find(id);
  if (stream == nullptr) return NoSuchStream(id);
  return stream->Send(std::move(message));
}

TransferProgress Streams::Transfer(ConnectionId id) {
  const std::shared_ptr<ServerStream> stream = Find(id);
  return stream == nullptr ? TransferProgress() : stream->Transfer();
}

void Streams::Close(ConnectionId id) {
  const std::shared_ptr<ServerStream> stream = Find(id);
  if (stream != nullptr) stream->Close();
}

}  // namespace runnel
