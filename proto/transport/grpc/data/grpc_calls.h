#pragma once

// The agreement of the dialling and the accepting end of a gRPC stream, and the list of live calls.

#include <grpcpp/support/async_stream.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "proto/transport/grpc/data/grpc_stream.h"
#include "proto/transport/grpc/grpc_frames.h"

namespace runnel {

// gRPC's own limit of a message is behind the assembler's, which knows what to say.
// A chunk, and a header and hello beside it.
inline constexpr int kMaxGrpcMessageBytes = static_cast<int>(kMaxChunkBytes) + (1 << 16);
// HTTP/2 frames of this size instead of 16 KiB: fewer headers a message.
inline constexpr int kHttp2FrameBytes = 1 << 20;

// `more`: as of StreamCalls.
inline grpc::WriteOptions WriteOptionsOf(bool more) {
  return more ? grpc::WriteOptions().set_buffer_hint() : grpc::WriteOptions();
}

// The calls of a listener or of a dialler, which ends when they have. Thread-safe.
class LiveCalls {
 public:
  void Begin();
  // The last word of a call: it is destroyed.
  void Gone();
  // The stream of a call that is alive. False: it came after Abort().
  bool Add(const std::shared_ptr<GrpcStream>& stream);
  void Abort(const absl::Status& status);
  // Waits until all calls are gone; not on a thread that ends them.
  void Wait();

 private:
  std::mutex mutex_;
  std::condition_variable gone_;
  bool aborted_ = false;                            // guarded by mutex_
  std::vector<std::weak_ptr<GrpcStream>> streams_;  // guarded by mutex_
  int calls_ = 0;                                   // guarded by mutex_
};

}  // namespace runnel
