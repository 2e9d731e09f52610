#pragma once

// A worker's control stream at its own end, and the calls that carry it; included by
// grpc_client_*.cc and grpc_control_client.cc only.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/transport/control/control_parts.h"
#include "proto/transport/control/control_session.h"
#include "proto/transport/grpc/control/grpc_control_ends.h"
#include "proto/transport/link/address.h"
#include "proto/transport/link/silence_watch.h"

namespace runnel {

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
  // Number of messages that central has of this stream; none: it does not tell.
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

  // Called for the current call.
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
  // Whether central is heard as usual; with each heartbeat.
  void LookForSilence();
  // Central is heard. silence_ns: none: as usual.
  void TellHeard(std::optional<int64_t> silence_ns);
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
  IncomingMessages<proto::FromCentral> incoming_;  // used by the reading callback

  std::mutex mutex_;  // guards what follows
  std::condition_variable done_changed_;
  OutgoingMessages<proto::FromWorker> outgoing_;
  ControlSession session_;
  SilenceWatch silence_;              // watches central
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

}  // namespace runnel
