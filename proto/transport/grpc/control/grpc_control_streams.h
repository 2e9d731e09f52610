#pragma once

// The control streams of one listener; included by grpc_control_*.cc only.

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/grpcpp.h"
#include "proto/transport/control/control_parts.h"
#include "proto/transport/grpc/control/grpc_control_ends.h"

namespace runnel {

class ServerStream;

// The streams of one listener. Thread-safe.
class Streams : public std::enable_shared_from_this<Streams> {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  Streams(const GrpcControlOptions& options, EventLoop* timers, CentralControlObserver* observer)
      : options_(options), timers_(timers), observer_(observer) {}

  const GrpcControlOptions& options() const { return options_; }
  // Secret that a joining worker must show from now on. Empty: nobody may join.
  void RequireSecret(std::string secret);
  void LimitStates(int64_t bytes) { max_state_bytes_ = static_cast<size_t>(bytes); }
  size_t max_state_bytes() const { return max_state_bytes_; }
  // PermissionDenied: this role may not make the call. Only with an identity.
  absl::StatusOr<CertificateInfo> CheckRole(const grpc::CallbackServerContext& context, Role role);
  // PermissionDenied: the caller may not give orders. With an identity an operator's certificate
  // counts, else the join secret; without either nobody may.
  absl::Status CheckOperator(const grpc::CallbackServerContext& context);
  // Ends the streams whose certificates count no more, now and every second.
  void CheckPeers();
  void LogRefusal(absl::string_view why);
  EventLoop& timers() { return *timers_; }
  CentralControlObserver& observer() { return *observer_; }

  // The reactor of a new call, which may be one that only refuses it. The call is a new stream's,
  // or the next one of a stream whose connection broke.
  Reactor* Add(grpc::CallbackServerContext* context);
  void Remove(ConnectionId id);
  std::shared_ptr<ServerStream> Find(ConnectionId id);
  // As CentralControl::Send.
  absl::Status Send(ConnectionId id, CentralMessage message);
  TransferProgress Transfer(ConnectionId id);
  void Close(ConnectionId id);
  // Accepts no more and closes all in order.
  void CloseAll();
  void WaitUntilEmpty();

 private:
  absl::Status CheckSecret(const grpc::CallbackServerContext& context);
  // The caller's certificate, if certificates are asked for. PermissionDenied: the caller may not
  // join.
  absl::StatusOr<std::optional<CertificateInfo>> CheckPeer(
      const grpc::CallbackServerContext& context);
  absl::StatusOr<std::shared_ptr<ServerStream>> AddStream(std::string session,
                                                          std::optional<CertificateInfo> peer);
  std::shared_ptr<ServerStream> FindSession(const std::string& session);
  // The oldest of more than max_strangers streams that have not said hello; null: there are not so
  // many.
  std::shared_ptr<ServerStream> OneStrangerTooMany();

  const GrpcControlOptions options_;
  EventLoop* timers_;
  CentralControlObserver* observer_;
  std::mutex mutex_;
  std::condition_variable removed_;
  std::map<ConnectionId, std::shared_ptr<ServerStream>> streams_;  // guarded by mutex_
  ConnectionId last_id_;                                           // guarded by mutex_
  bool closing_ = false;                                           // guarded by mutex_
  std::optional<std::string> secret_;  // none: no secret is asked for; guarded by mutex_
  std::atomic<size_t> max_state_bytes_{kMaxControlMessageBytes};
};

}  // namespace runnel
