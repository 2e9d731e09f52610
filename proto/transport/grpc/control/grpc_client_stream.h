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
#include "proto/transport/control/resumable_messages.h"
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

// Begins the calls of a stream. One thread at a time.
class CentralCalls {
 public:
  // join_secret: empty, if there is none to show.
  CentralCalls(std::shared_ptr<grpc::Channel> channel, const std::string& join_secret);

  // received: the number of central's messages that have come, if there was a call before; such a
  // call waits until central is there.
  void Begin(ClientCall& call, std::optional<int64_t> received);
  // The port has answered: the next call may connect at once.
  void ExpectConnection() { grpc::experimental::ChannelResetConnectionBackoff(channel_.get()); }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  std::map<std::string, std::string> metadata_;
};

// For how long a worker looks for central once its connection broke. No thread, no clock.
class CentralSearch {
 public:
  // resume_ms: from the break on; refused_ms: while nobody listens at central's port.
  CentralSearch(int64_t resume_ms, int64_t refused_ms)
      : resume_ns_(resume_ms * 1'000'000), refused_ns_(refused_ms * 1'000'000) {}

  void Break(int64_t now_ns) {
    if (broken_since_ns_ == 0) broken_since_ns_ = now_ns;
  }
  void Find() { broken_since_ns_ = refused_since_ns_ = 0; }
  bool TakesTooLong(int64_t now_ns) const { return now_ns - broken_since_ns_ > resume_ns_; }
  // Takes the port's answer. True: nobody has listened there for too long.
  bool IsRefusedTooLong(PortAnswer answer, int64_t now_ns) {
    if (answer != PortAnswer::kRefused) refused_since_ns_ = 0;
    if (answer == PortAnswer::kRefused && refused_since_ns_ == 0) refused_since_ns_ = now_ns;
    return refused_since_ns_ != 0 && now_ns - refused_since_ns_ > refused_ns_;
  }

 private:
  const int64_t resume_ns_;
  const int64_t refused_ns_;
  int64_t broken_since_ns_ = 0;   // 0: the connection stands
  int64_t refused_since_ns_ = 0;  // 0: somebody listens
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
  bool is_closing() const { return course_ == StreamCourse::kClosing; }
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
  CentralCalls calls_;
  IncomingMessages<proto::FromCentral> incoming_;  // used by the reading callback

  std::mutex mutex_;  // guards what follows
  std::condition_variable done_changed_;
  ResumableMessages<proto::FromWorker> messages_;
  SilenceWatch silence_;              // watches central
  std::shared_ptr<ClientCall> call_;  // until it is done; null: the connection broke
  absl::Status end_;                  // not OK: central sent bad bytes
  bool answered_ = false;             // by central, ever
  CentralSearch search_;
  StreamCourse course_ = StreamCourse::kOpen;
};

}  // namespace runnel
