#include "proto/transport/grpc/control/grpc_control_streams.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/sha256.h"
#include "proto/transport/grpc/control/grpc_server_stream.h"
#include "proto/transport/grpc/security/grpc_security.h"

namespace runnel {
namespace {

using Reactor = Streams::Reactor;

constexpr int64_t kNanosPerMilli = 1'000'000;
constexpr size_t kMaxSessionBytes = 64;

absl::Status NoSuchStream(ConnectionId id) {
  return absl::NotFoundError(absl::StrCat("control stream ", id.value(), ": is not there"));
}

absl::Status CentralEnds() { return absl::UnavailableError("central ends"); }

std::string MetadataOf(const grpc::CallbackServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

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
  if (closing_) return CentralEnds();  // its secret is gone
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
  if (absl::IsPermissionDenied(status)) LogRefusal(status.message());
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
    // One that is being refused already makes no room by being refused again.
    if (stream->joined() || stream->is_refused()) continue;
    ++strangers;
    if (oldest == nullptr) oldest = stream;
  }
  return strangers > options_.max_strangers ? oldest : nullptr;
}

absl::StatusOr<std::optional<CertificateInfo>> Streams::CheckPeer(
    const grpc::CallbackServerContext& context) {
  if (options_.security.encrypts()) return CheckRole(context, Role::kWorker);
  const absl::Status status = CheckSecret(context);
  if (absl::IsPermissionDenied(status)) LogRefusal(status.message());
  if (!status.ok()) return status;
  return std::nullopt;
}

absl::StatusOr<std::shared_ptr<ServerStream>> Streams::AddStream(
    std::string session, std::optional<CertificateInfo> peer) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closing_) return CentralEnds();
  if (streams_.size() >= static_cast<size_t>(options_.max_streams)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("central has ", streams_.size(), " control streams already"));
  }
  last_id_ = last_id_.next();
  return streams_
      .emplace(last_id_, std::make_shared<ServerStream>(last_id_, std::move(session),
                                                        std::move(peer), shared_from_this()))
      .first->second;
}

std::shared_ptr<ServerStream> Streams::FindSession(const std::string& session) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [id, stream] : streams_) {
    if (!session.empty() && EqualSecrets(stream->session_key(), session)) return stream;
  }
  return nullptr;
}

Reactor* Streams::Add(grpc::CallbackServerContext* context) {
  absl::StatusOr<std::optional<CertificateInfo>> peer = CheckPeer(*context);
  if (!peer.ok()) return new Refusal(peer.status());
  const std::string session = MetadataOf(*context, kSessionKey);
  const std::string received_text = MetadataOf(*context, kReceivedKey);
  const bool is_new = received_text.empty();
  int64_t received = 0;
  if (!is_new && !absl::SimpleAtoi(received_text, &received))
    return new Refusal(absl::InvalidArgumentError("runnel-received: is no number"));
  std::shared_ptr<ServerStream> stream = FindSession(session);
  if (!is_new && (stream == nullptr || !stream->joined()))
    return new Refusal(absl::NotFoundError("central does not know this stream (any more)"));
  if (is_new) {
    if (stream != nullptr || session.size() > kMaxSessionBytes)
      return new Refusal(absl::InvalidArgumentError("runnel-session: is no new one"));
    auto added = AddStream(session, *std::move(peer));
    if (!added.ok()) return new Refusal(added.status());
    stream = *std::move(added);
  } else if (peer->has_value() != stream->peer().has_value() ||
             (peer->has_value() && (*peer)->subject.name != stream->peer()->subject.name)) {
    return new Refusal(absl::PermissionDeniedError("this stream is another worker's"));
  }
  auto call = std::make_shared<ServerCall>(context, stream);
  const absl::StatusOr<int64_t> has = stream->Attach(call, received);
  if (!has.ok()) return new Refusal(has.status());
  if (is_new) {
    if (const std::shared_ptr<ServerStream> stranger = OneStrangerTooMany())
      stranger->Fail(absl::ResourceExhaustedError("too many streams that said no hello yet"));
    stream->AwaitHello();
  }
  ServerCall* const reactor = call.get();
  reactor->Begin(std::move(call), *has);
  return reactor;
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
