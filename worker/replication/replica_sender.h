#pragma once

// Sends a copy of a stage's state to a neighbour in pieces that keep out of the way: so few at
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

// Ahead of the bytes in each piece: five numbers of 8 bytes, little-endian (PieceHead).
inline constexpr int64_t kReplicaHeadBytes = 40;
inline constexpr int64_t kReplicaPieceBytes = int64_t{16} << 10;

// `committed` is the last barrier that central had committed when the copy began. The receiver may
// hear of that commit later than of the copy, which comes over another connection, and must not
// drop the committed barrier for the new one.
struct PieceHead {
  Sequence barrier;
  ReplicaId committed;  // generation 0: none is
  int source = 0;       // stage whose state it is
  int holder = 0;       // the last stage that keeps it; those between pass it on
  friend bool operator==(const PieceHead&, const PieceHead&) = default;
};

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

  // Not while busy. base: the neighbour's copy of the barrier that head.committed names, or null.
  void Begin(const PieceHead& head, std::shared_ptr<const SummedState> copy,
             const SummedState* base = nullptr);
  // Something is still to be sent or acknowledged.
  bool busy() const { return writer_.has_value(); }
  // The neighbour has acknowledged all frames but the last `on_their_way`. True: that was all.
  bool Acknowledge(int64_t on_their_way, int64_t now_ns);
  // The next frame, if one may leave.
  std::optional<Frame> Next(int64_t now_ns);

  const PieceHead& head() const { return head_; }
  int64_t bytes() const { return bytes_; }  // that are sent

 private:
  Generation generation_;
  BufferPool* pool_;
  std::optional<ReplicaWriter> writer_;
  PieceHead head_;
  int64_t bytes_ = 0;
  Sequence next_;                // number of the next frame
  std::deque<int64_t> sent_ns_;  // times of frames on their way
  int64_t window_ = kFirstFrames;
};

// InvalidArgument: the frame is no piece.
absl::StatusOr<PieceHead> ReadPieceHead(const Frame& frame);
// For tests and simulated bugs: a piece begins with it.
void WritePieceHead(const PieceHead& head, absl::Span<std::byte> piece);

}  // namespace runnel
