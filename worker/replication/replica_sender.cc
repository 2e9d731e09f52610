#include "worker/replication/replica_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

constexpr size_t kNumberBytes = 8;
static_assert(kReplicaHeadBytes == 5 * kNumberBytes);

void PutNumber(int64_t number, size_t index, absl::Span<std::byte> to) {
  const auto bits = static_cast<uint64_t>(number);
  for (size_t i = 0; i < kNumberBytes; ++i)
    to[index * kNumberBytes + i] = static_cast<std::byte>(bits >> (8 * i));
}

int64_t NumberAt(size_t index, absl::Span<const std::byte> from) {
  uint64_t bits = 0;
  for (size_t i = kNumberBytes; i-- > 0;)
    bits = bits << 8 | std::to_integer<uint64_t>(from[index * kNumberBytes + i]);
  return static_cast<int64_t>(bits);
}

}  // namespace

void WritePieceHead(const PieceHead& head, absl::Span<std::byte> piece) {
  PutNumber(head.barrier.value(), 0, piece);
  PutNumber(head.committed.generation.value(), 1, piece);
  PutNumber(head.committed.sequence.value(), 2, piece);
  PutNumber(head.source, 3, piece);
  PutNumber(head.holder, 4, piece);
}

absl::StatusOr<PieceHead> ReadPieceHead(const Frame& frame) {
  const absl::Span<const std::byte> bytes = frame.payload.bytes();
  if (bytes.size() <= static_cast<size_t>(kReplicaHeadBytes))
    return absl::InvalidArgumentError(absl::StrCat("replica: a piece of ", bytes.size(), " bytes"));
  const int64_t generation = NumberAt(1, bytes);
  if (generation < 0 || generation > frame.header.generation.value()) {
    return absl::InvalidArgumentError(absl::StrCat("replica: a piece of plan ",
                                                   frame.header.generation.value(),
                                                   " commits a barrier of plan ", generation));
  }
  const int64_t source = NumberAt(3, bytes);
  const int64_t holder = NumberAt(4, bytes);
  if (std::min(source, holder) < 0 || std::max(source, holder) >= kMaxLayers) {
    return absl::InvalidArgumentError(
        absl::StrCat("replica: a piece of stage ", source, " for stage ", holder));
  }
  const PieceHead head = {
      Sequence(NumberAt(0, bytes)),
      {Generation(static_cast<int32_t>(generation)), Sequence(NumberAt(2, bytes))},
      static_cast<int>(source),
      static_cast<int>(holder)};
  if (head.barrier < Sequence(0) || head.committed.sequence < Sequence(0))
    return absl::InvalidArgumentError("replica: the barrier is negative");
  return head;
}

void ReplicaSender::Begin(const PieceHead& head, std::shared_ptr<const SummedState> copy,
                          const SummedState* base) {
  head_ = head;
  writer_.emplace(std::move(copy), base);
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
  WritePieceHead(head_, piece);
  writer_->Read(piece.subspan(kReplicaHeadBytes));
  sent_ns_.push_back(now_ns);
  return frame;
}

}  // namespace runnel
