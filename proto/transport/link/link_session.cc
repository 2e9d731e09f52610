#include "proto/transport/link/link_session.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

bool IsData(FrameKind kind) {
  return (kind >= FrameKind::kActivation && kind <= FrameKind::kEvalLabels) ||
         kind == FrameKind::kReplica || IsDry(kind) || IsOfClipping(kind);
}

// Whether data goes back to the sender of this kind, once for each of it.
bool HasReturnTraffic(FrameKind kind) {
  return kind == FrameKind::kActivation || kind == FrameKind::kGradient || IsOfClipping(kind);
}

int64_t BytesOf(const Frame& frame) {
  return kFrameHeaderBytes + static_cast<int64_t>(frame.payload.size());
}

absl::Status Impossible(const FrameHeader& header, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("link: frame of kind ", static_cast<int>(header.kind), ", generation ",
                   header.generation.value(), ", sequence ", header.sequence.value(), ": ", why));
}

}  // namespace

LinkSession::LinkSession(DeliverFn deliver) : deliver_(std::move(deliver)) {}

void LinkSession::Send(Frame frame) {
  assert(IsData(frame.header.kind));
  if (frame.header.generation < generation_) {
    ++counters_.stale_dropped;
    return;
  }
  Stream& stream = streams_[frame.header.kind];
  assert(stream.unacknowledged.empty() ||
         PositionOf(stream.unacknowledged.back().frame.header) < PositionOf(frame.header));
  SealFrame(frame);
  stream.unacknowledged.push_back({next_order_++, false, std::move(frame)});
  Transmit(stream, stream.unacknowledged.back());
  // Behind the frame, so that the transport can write both at once.
  SendOwedAcks();
}

void LinkSession::Transmit(Stream& stream, Kept& kept) {
  // A connection that is closed but not yet reported so: the frame waits for the next one.
  if (connection_ == nullptr || !connection_->Send(kept.frame).ok()) return;
  if (std::exchange(kept.transmitted, true)) {
    ++counters_.frames_resent;
    return;
  }
  ++counters_.frames_sent;
  counters_.bytes_sent += BytesOf(kept.frame);
  if (BytesOf(kept.frame) >= kLargeFrameBytes) ++counters_.large_frames_sent;
  stream.last_transmitted = std::max(stream.last_transmitted, PositionOf(kept.frame.header));
}

void LinkSession::Acknowledge(FrameKind kind, Generation generation, Sequence sequence) {
  if (generation < generation_) return;
  Stream& stream = streams_[kind];
  assert(generation == generation_ && sequence <= stream.last_delivered);
  if (sequence <= stream.last_acknowledged) return;
  stream.last_acknowledged = sequence;
  const int64_t owed = sequence.value() - stream.last_told.value();
  if (owed < kMostOwed && HasReturnTraffic(kind) && !stream.is_acknowledged_at_once) return;
  SendAck(kind, stream);
}

void LinkSession::SendOwedAcks() {
  for (auto& [kind, stream] : streams_) {
    if (stream.last_acknowledged > stream.last_told) SendAck(kind, stream);
  }
}

void LinkSession::SendAck(FrameKind kind, Stream& stream) {
  stream.last_told = stream.last_acknowledged;
  if (connection_ == nullptr) return;
  Frame ack;
  ack.header.kind = FrameKind::kAck;
  ack.header.acked_kind = kind;
  ack.header.generation = generation_;
  ack.header.sequence = stream.last_acknowledged;
  SealFrame(ack);
  // Lost with the connection: told again on the next one.
  connection_->Send(ack).IgnoreError();
}

void LinkSession::Connected(std::shared_ptr<Connection> connection) {
  // The old one goes first: its end may be reported, and handled, while it is destroyed.
  Disconnected();
  connection_ = std::move(connection);
  // Early frames were not acknowledged, so they come again.
  early_.clear();
  std::vector<std::pair<Stream*, Kept*>> resend;
  for (auto& [kind, stream] : streams_) {
    stream.last_on_connection = Position();
    if (stream.last_acknowledged >= Sequence(0)) SendAck(kind, stream);
    for (Kept& kept : stream.unacknowledged) resend.emplace_back(&stream, &kept);
  }
  std::sort(resend.begin(), resend.end(),
            [](const auto& a, const auto& b) { return a.second->order < b.second->order; });
  for (const auto& [stream, kept] : resend) Transmit(*stream, *kept);
}

void LinkSession::Disconnected() {
  const std::shared_ptr<Connection> old = std::exchange(connection_, nullptr);
}

absl::Status LinkSession::Received(Frame frame) {
  if (frame.header.kind == FrameKind::kAck) return ReceivedAck(frame.header);
  if (!IsData(frame.header.kind)) return Impossible(frame.header, "not data and not an ack");
  Stream& stream = streams_[frame.header.kind];
  const Position position = PositionOf(frame.header);
  if (position <= stream.last_on_connection) {
    return Impossible(frame.header, "does not ascend on its connection");
  }
  stream.last_on_connection = position;
  return Dispatch(std::move(frame));
}

absl::Status LinkSession::ReceivedAck(const FrameHeader& header) {
  if (!IsData(header.acked_kind)) return Impossible(header, "acknowledges no data");
  // the old generation no longer counts
  if (header.generation < generation_) return absl::OkStatus();
  Stream& stream = streams_[header.acked_kind];
  const Position acked = PositionOf(header);
  if (acked > stream.last_transmitted) {
    return Impossible(header, absl::StrCat("acknowledges what was never sent, of kind ",
                                           static_cast<int>(header.acked_kind)));
  }
  while (!stream.unacknowledged.empty() &&
         PositionOf(stream.unacknowledged.front().frame.header) <= acked) {
    stream.unacknowledged.pop_front();
  }
  return absl::OkStatus();
}

absl::Status LinkSession::Dispatch(Frame frame) {
  if (frame.header.generation < generation_) {
    ++counters_.stale_dropped;
    return absl::OkStatus();
  }
  if (frame.header.generation > generation_) {
    if (early_.size() >= kMaxEarlyFrames) {
      return Impossible(frame.header, "too many frames of a generation that has not started");
    }
    early_.push_back(std::move(frame));
    return absl::OkStatus();
  }
  Stream& stream = streams_[frame.header.kind];
  if (frame.header.sequence <= stream.last_delivered) {
    ++counters_.duplicates_dropped;
    return absl::OkStatus();
  }
  stream.last_delivered = frame.header.sequence;
  ++counters_.frames_received;
  counters_.bytes_received += BytesOf(frame);
  deliver_(std::move(frame));
  return absl::OkStatus();
}

void LinkSession::StartGeneration(Generation generation) {
  if (generation <= generation_) return;
  generation_ = generation;
  for (auto& [kind, stream] : streams_) {
    while (!stream.unacknowledged.empty() &&
           stream.unacknowledged.front().frame.header.generation < generation) {
      stream.unacknowledged.pop_front();
    }
    stream.last_delivered = Sequence(-1);
    stream.last_acknowledged = Sequence(-1);
    stream.last_told = Sequence(-1);
  }
  // Dispatch puts frames back that are still early.
  for (Frame& frame : std::exchange(early_, {})) Dispatch(std::move(frame)).IgnoreError();
}

int64_t LinkSession::unacknowledged(FrameKind kind) const {
  const auto found = streams_.find(kind);
  return found == streams_.end() ? 0 : static_cast<int64_t>(found->second.unacknowledged.size());
}

}  // namespace runnel
