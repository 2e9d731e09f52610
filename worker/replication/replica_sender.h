#pragma once

// Sends a copy of the stage's state to a neighbour in pieces that keep out of the way: so few at
// once that an activation or a gradient waits for little of it. A state machine: no thread, no
// clock; one owner calls it and sends the frames.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "proto/base/model/model_state.h"
#include "proto/base/tensor/payload.h"
#include "proto/transport/control/control.h"
#include "proto/transport/link/frame.h"
#include "worker/replication/replica_stream.h"

namespace runnel {

// Of a piece: its barrier, and the bytes of the state.
inline constexpr int64_t kReplicaHeadBytes = 8;
inline constexpr int64_t kReplicaPieceBytes = int64_t{16} << 10;

class ReplicaSender {
 public:
  // Frames on their way at once. A piece that is acknowledged within the first time adds one, one
  // that needs longer than the second halves them.
  static constexpr int64_t kFirstFrames = 2;
  static constexpr int64_t kMostFrames = 32;
  static constexpr int64_t kShortNs = 5'000'000;
  static constexpr int64_t kLongNs = 20'000'000;

  // `pool` outlives the sender.
  ReplicaSender(Generation generation, BufferPool* pool) : generation_(generation), pool_(pool) {}

  // Not while busy.
  void Begin(Sequence barrier, std::shared_ptr<const ModelState> state);
  // Something is still to be sent or acknowledged.
  bool busy() const { return writer_.has_value(); }
  // The neighbour has acknowledged all frames but the last `on_their_way`. True: that was all.
  bool Acknowledge(int64_t on_their_way, int64_t now_ns);
  // The next frame, if one may leave.
  std::optional<Frame> Next(int64_t now_ns);

  Sequence barrier() const { return barrier_; }
  int64_t bytes() const { return bytes_; }  // of the state that is sent

 private:
  Generation generation_;
  BufferPool* pool_;
  std::optional<ReplicaWriter> writer_;
  Sequence barrier_;
  int64_t bytes_ = 0;
  Sequence next_;                // number of the next frame
  std::deque<int64_t> sent_ns_;  // of frames on their way
  int64_t window_ = kFirstFrames;
};

// The barrier of a piece. InvalidArgument: it is none.
absl::StatusOr<Sequence> BarrierOfPiece(const Frame& frame);

}  // namespace runnel
