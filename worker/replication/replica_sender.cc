#include "worker/replication/replica_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

void PutBarrier(Sequence barrier, absl::Span<std::byte> to) {
  const auto bits = static_cast<uint64_t>(barrier.value());
  for (size_t i = 0; i < kReplicaHeadBytes; ++i) to[i] = static_cast<std::byte>(bits >> (8 * i));
}

}  // namespace

void ReplicaSender::Begin(Sequence barrier, std::shared_ptr<const ModelState> state) {
  barrier_ = barrier;
  writer_.emplace(std::move(state));
  bytes_ = writer_->left();
}

bool ReplicaSender::Acknowledge(int64_t on_their_way, int64_t now_ns) {
  while (static_cast<int64_t>(sent_ns_.size()) > on_their_way) {
    const int64_t took_ns = now_ns - sent_ns_.front();
    sent_ns_.pop_front();
    if (took_ns < kShortNs) window_ = std::min(window_ + 1, kMostFrames);
    if (took_ns > kLongNs) window_ = std::max<int64_t>(window_ / 2, 1);
  }
  if (!busy() || writer_->left() > 0 || !sent_ns_.empty()) return false;
  writer_.reset();
  return true;
}

std::optional<Frame> ReplicaSender::Next(int64_t now_ns) {
  if (!busy() || writer_->left() == 0) return std::nullopt;
  if (static_cast<int64_t>(sent_ns_.size()) >= window_) return std::nullopt;
  const int64_t bytes = std::min(kReplicaPieceBytes, writer_->left());
  Frame frame;
  frame.header.kind = FrameKind::kReplica;
  frame.header.generation = generation_;
  frame.header.sequence = std::exchange(next_, next_.next());
  frame.payload = pool_->Allocate(static_cast<size_t>(kReplicaHeadBytes + bytes));
  const absl::Span<std::byte> piece = frame.payload.mutable_bytes();
  PutBarrier(barrier_, piece);
  writer_->Read(piece.subspan(kReplicaHeadBytes));
  sent_ns_.push_back(now_ns);
  return frame;
}

absl::StatusOr<Sequence> BarrierOfPiece(const Frame& frame) {
  const absl::Span<const std::byte> bytes = frame.payload.bytes();
  if (bytes.size() <= static_cast<size_t>(kReplicaHeadBytes))
    return absl::InvalidArgumentError(absl::StrCat("replica: a piece of ", bytes.size(), " bytes"));
  uint64_t bits = 0;
  for (size_t i = kReplicaHeadBytes; i-- > 0;)
    bits = bits << 8 | std::to_integer<uint64_t>(bytes[i]);
  const Sequence barrier(static_cast<int64_t>(bits));
  if (barrier < Sequence(0)) return absl::InvalidArgumentError("replica: the barrier is negative");
  return barrier;
}

}  // namespace runnel
