#include "worker/replication/stage_replication.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/bit_schedule.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// If more than this waits for a link, a piece would only wait behind it.
constexpr int64_t kMostQueuedBytes = 4 << 10;
constexpr int64_t kLookAgainNs = 5'000'000;

// Encoders that keep values for each element of a boundary or of each sample, and some room for
// names.
absl::StatusOr<int64_t> MaxEncoderBytes(const StageReplicationOptions& options, size_t stage) {
  constexpr int64_t kRoom = int64_t{1} << 20;
  constexpr int64_t kBytes = 2 * sizeof(float);
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> layers,
                          InferShapes(options.model, options.batch_size));
  int64_t bytes = kRoom;
  const auto add_link = [&](size_t link) -> absl::Status {
    const auto layer = static_cast<size_t>(options.plan.stages[link].last_layer);
    bytes += layers[layer].op_outputs.back().elements() * kBytes;
    RUNNEL_ASSIGN_OR_RETURN(const KeptBytesFn kept,
                            MostKeptBytes(options.plan.links[link].codec_forward));
    if (kept) bytes += kept(layers[layer].output, options.dataset_samples);
    return absl::OkStatus();
  };
  if (stage > 0) RUNNEL_RETURN_IF_ERROR(add_link(stage - 1));
  if (stage < options.plan.links.size()) RUNNEL_RETURN_IF_ERROR(add_link(stage));
  return bytes;
}

}  // namespace

StageReplication::StageReplication(StageReplicationOptions options)
    : options_(std::move(options)),
      stage_(options_.stage),
      lines_{Line{.sender = ReplicaSender(options_.plan.generation, options_.pool)},
             Line{.sender = ReplicaSender(options_.plan.generation, options_.pool)}} {}

absl::Status StageReplication::Begin(const Replicate& request,
                                     std::shared_ptr<const SummedState> copy, int64_t stall_ns) {
  const ReplicaId& id = request.id;
  if (own_left_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("was asked to replicate its state at ", id.sequence.value(), " while that at ",
                     under_way_.id.sequence.value(), " is still on its way"));
  }
  for (const int holder : request.holders) {
    if (holder < 0 || holder >= stages() || holder == stage_)
      return absl::InvalidArgumentError(absl::StrCat("replicate: stage ", stage_, " of ", stages(),
                                                     " has no copies at stage ", holder));
  }
  options_.store->Add(id, stage_, true, copy);
  under_way_ = {id, stall_ns};
  began_ns_ = options_.loop->clock().NowNanos();
  own_left_ = static_cast<int>(request.holders.size());
  if (own_left_ == 0) options_.on_replicated(under_way_);
  for (const int holder : request.holders)
    Send({{id.sequence, options_.store->committed(), stage_, holder}, copy});
  return absl::OkStatus();
}

std::shared_ptr<const SummedState> StageReplication::BaseOf(const PieceHead& head) const {
  if (head.committed.generation != options_.plan.generation) return nullptr;
  return options_.store->CopyOf(head.committed, head.source);
}

void StageReplication::Send(Copy copy) {
  const Side side = SideOf(copy.head.holder);
  Line& line = lines_[side];
  // Until a later barrier is committed the neighbour keeps this one.
  const auto arrived = line.arrived.find(copy.head.source);
  if (arrived != line.arrived.end() && arrived->second == copy.head.committed.sequence)
    copy.base = BaseOf(copy.head);
  line.waiting.push_back(std::move(copy));
  Pump(side);
}

void StageReplication::Sent(const PieceHead& head, int64_t bytes) {
  if (head.source != stage_) return;
  under_way_.bytes += bytes;
  if (--own_left_ > 0) return;
  under_way_.took_ns = options_.loop->clock().NowNanos() - began_ns_;
  options_.on_replicated(under_way_);
}

void StageReplication::Pump(Side side) {
  Line& line = lines_[side];
  if (line.link == nullptr) return;
  const int64_t now_ns = options_.loop->clock().NowNanos();
  LinkSession& session = line.link->session();
  if (line.sender.Acknowledge(session.unacknowledged(FrameKind::kReplica), now_ns)) {
    line.arrived[line.sender.head().source] = line.sender.head().barrier;
    Sent(line.sender.head(), line.sender.bytes());
  }
  if (!line.sender.busy()) {
    if (line.waiting.empty()) return;
    Copy& copy = line.waiting.front();
    line.sender.Begin(copy.head, std::move(copy.state), copy.base.get());
    line.waiting.pop_front();
  }
  while (line.link->queued_bytes() <= kMostQueuedBytes) {
    std::optional<Frame> frame = line.sender.Next(now_ns);
    if (!frame.has_value()) return;
    session.Send(*std::move(frame));
  }
  // The queue may hold acknowledgements, which get no answer.
  if (std::exchange(line.looks_again, true)) return;
  options_.loop->PostAfter(kLookAgainNs, [this, side, alive = alive_] {
    if (!*alive) return;
    lines_[side].looks_again = false;
    Pump(side);
  });
}

absl::StatusOr<ReplicaReader> StageReplication::ReaderFor(const PieceHead& head) const {
  const auto stage = static_cast<size_t>(head.source);
  const StagePlan& range = options_.plan.stages[stage];
  RUNNEL_ASSIGN_OR_RETURN(const int64_t max_encoder_bytes, MaxEncoderBytes(options_, stage));
  return ReplicaReader::Create(options_.model, range.first_layer, range.last_layer, options_.format,
                               max_encoder_bytes, BaseOf(head));
}

absl::StatusOr<PieceHead> StageReplication::HeadOf(Side from, const Frame& frame) const {
  RUNNEL_ASSIGN_OR_RETURN(const PieceHead head, ReadPieceHead(frame));
  const bool is_for_here = head.holder == stage_ || SideOf(head.holder) != from;
  if (std::max(head.source, head.holder) >= stages() || head.source == stage_ ||
      SideOf(head.source) != from || !is_for_here) {
    return absl::InvalidArgumentError(absl::StrCat("replica: a piece of stage ", head.source,
                                                   " for stage ", head.holder,
                                                   " does not pass stage ", stage_));
  }
  return head;
}

absl::Status StageReplication::Arrived(Side from, const Frame& frame) {
  RUNNEL_ASSIGN_OR_RETURN(const PieceHead head, HeadOf(from, frame));
  std::optional<Incoming>& incoming = lines_[from].incoming;
  if (!incoming.has_value()) {
    RUNNEL_ASSIGN_OR_RETURN(ReplicaReader reader, ReaderFor(head));
    incoming.emplace(Incoming{head, std::move(reader)});
  }
  if (incoming->head != head) {
    return absl::InvalidArgumentError(absl::StrCat(
        "replica: a piece of barrier ", head.barrier.value(), " of stage ", head.source,
        " within one of ", incoming->head.barrier.value(), " of stage ", incoming->head.source));
  }
  RUNNEL_RETURN_IF_ERROR(incoming->reader.Add(frame.payload.bytes().subspan(kReplicaHeadBytes)));
  if (!incoming->reader.whole()) return absl::OkStatus();
  Incoming whole = *std::move(incoming);
  incoming.reset();
  return Keep(std::move(whole));
}

absl::Status StageReplication::Keep(Incoming incoming) {
  const PieceHead& head = incoming.head;
  const StagePlan& range = options_.plan.stages[static_cast<size_t>(head.source)];
  auto state = std::make_shared<const SummedState>(incoming.reader.Take());
  RUNNEL_RETURN_IF_ERROR(CheckState(state->state, options_.model, range.first_layer,
                                    range.last_layer, options_.format));
  const ReplicaId id = {options_.plan.generation, head.barrier};
  options_.store->Commit(head.committed);
  options_.store->Add(id, head.source, false, state);
  if (head.holder != stage_) {
    Send({head, std::move(state)});
    return absl::OkStatus();
  }
  if (std::abs(head.source - stage_) > 1)
    options_.on_replicated({.id = id, .kept_of = head.source});
  return absl::OkStatus();
}

}  // namespace runnel
