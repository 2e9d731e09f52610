#pragma once

// The common part of both ends of a gRPC stream: what is sent and read (stream_writer.h,
// stream_reader.h), and how the stream begins and ends.

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/transport/grpc/data/stream_reader.h"
#include "proto/transport/grpc/data/stream_writer.h"
#include "proto/transport/link/observer_gate.h"
#include "proto/transport/link/scheduler.h"
#include "proto/transport/link/transport.h"

namespace runnel {

// A gRPC call's operations for its stream. Called with the stream's lock held: no call comes back
// into the stream on the same thread.
class StreamCalls {
 public:
  virtual ~StreamCalls() = default;
  virtual void Read(grpc::ByteBuffer* message) = 0;
  // `more`: another message follows as soon as this one is taken, so it may wait for that.
  virtual void Write(const grpc::ByteBuffer* message, bool more) = 0;
  // Makes operations under way fail.
  virtual void Cancel() = 0;
  // No Read or Write follows. The accepting end ends the stream with this.
  virtual void End(const absl::Status& status) = 0;
  // The accepting end ends the stream in order once either end has said goodbye; the other end
  // reads until then.
  virtual bool is_accepting_end() const = 0;
};

struct StreamOptions {
  int64_t chunk_bytes = 0;
  BufferPool* pool = nullptr;
  std::shared_ptr<ThreadScheduler> scheduler;
};

// Thread-safe; its call holds a reference until gRPC is done with it.
class GrpcStream final : public std::enable_shared_from_this<GrpcStream> {
 public:
  // peer: Connection::peer.
  explicit GrpcStream(StreamOptions options, std::string peer = {});

  // `calls` lives until Done().
  void SetCalls(StreamCalls* calls);
  // Gives the stream its observer and begins to read and write. False: its owner has let go of it.
  bool Attach(ConnectionObserver* observer, const LinkShaping& shaping);

  // Reactions of gRPC.
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  // `status`: how gRPC says that the stream ended; OK: in order.
  void Done(const absl::Status& status);

  // The methods of Connection.
  absl::Status Send(const Frame& frame);
  void Close();
  int64_t queued_bytes() const;
  const std::string& peer() const { return peer_; }
  // The owner lets go of the connection; after Close() the queue still leaves.
  void Release();
  // Ends the stream at once; the observer hears `status` and is not called after the return.
  void Abort(const absl::Status& status);

 private:
  // These expect mutex_ to be held.
  void Pump();
  void EndStream(const absl::Status& status, bool cancel);
  absl::Status Verdict(const absl::Status& status) const;
  // These do not.
  void Consume();
  void TimerFired();
  void Fail(const absl::Status& status);
  void Goodbye();

  const StreamOptions options_;
  const std::string peer_;
  mutable std::mutex mutex_;
  StreamCalls* calls_ = nullptr;        // guarded by mutex_; null before SetCalls and after Done
  std::shared_ptr<ObserverGate> gate_;  // set once, by Attach; guarded by mutex_
  bool released_ = false;               // guarded by mutex_, as all that follow
  bool closing_ = false;                // Close() was called
  bool goodbye_sent_ = false;
  bool goodbye_received_ = false;
  bool over_ = false;  // EndStream() was called
  // Status for the observer if this side decided the end; gRPC's status may come first.
  std::optional<absl::Status> decided_;
  bool timer_set_ = false;
  std::vector<Frame> waiting_;  // sent before Attach
  StreamWriter writer_;

  StreamReader reader_;  // used in ReadDone and its callees only; gRPC has one read under way
};

// The owner's handle of one end.
class GrpcConnection final : public Connection {
 public:
  explicit GrpcConnection(std::shared_ptr<GrpcStream> stream) : stream_(std::move(stream)) {}
  ~GrpcConnection() override { stream_->Release(); }

  absl::Status Send(const Frame& frame) override { return stream_->Send(frame); }
  void Close() override { stream_->Close(); }
  int64_t queued_bytes() const override { return stream_->queued_bytes(); }
  std::string peer() const override { return stream_->peer(); }

 private:
  const std::shared_ptr<GrpcStream> stream_;
};

}  // namespace runnel
