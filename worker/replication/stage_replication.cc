#include "worker/replication/stage_replication.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// If more than this waits for a link, a piece would only wait behind it.
constexpr int64_t kMostQueuedBytes = 4 << 10;
constexpr int64_t kLookAgainNs = 5'000'000;

// Encoders that keep values for each element of a boundary, and some room for names.
absl::StatusOr<int64_t> MaxEncoderBytes(const ModelSpec& model, const StagePlan& range,
                                        int64_t batch_size) {
  constexpr int64_t kRoom = int64_t{1} << 20;
  constexpr int64_t kBytes = 2 * sizeof(float);
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> layers, InferShapes(model, batch_size));
  int64_t bytes = kRoom;
  for (const int layer : {range.first_layer - 1, range.last_layer}) {
    if (layer >= 0)
      bytes += layers[static_cast<size_t>(layer)].op_outputs.back().elements() * kBytes;
  }
  return bytes;
}

}  // namespace

StageReplication::StageReplication(StageReplicationOptions options)
    : options_(std::move(options)),
      stage_(options_.stage),
      sender_(options_.plan.generation, options_.pool) {}

bool StageReplication::ReceivesFrom(ReplicaSource source) const {
  if (source == ReplicaSource::kUpstream) return stage_ > 0;
  return source == ReplicaSource::kDownstream && stage_ + 2 == stages();
}

const StagePlan& StageReplication::RangeOf(ReplicaSource from) const {
  const int stage = from == ReplicaSource::kUpstream ? stage_ - 1 : stage_ + 1;
  return options_.plan.stages[static_cast<size_t>(stage)];
}

absl::Status StageReplication::Begin(const ReplicaId& id, ModelState state, int64_t stall_ns) {
  if (sender_.busy()) {
    return absl::FailedPreconditionError(
        absl::StrCat("was asked to replicate its state at ", id.sequence.value(), " while that at ",
                     sender_.barrier().value(), " is still on its way"));
  }
  auto copy = std::make_shared<const ModelState>(std::move(state));
  options_.store->Add(id, ReplicaSource::kOwn, copy);
  under_way_ = {id, stall_ns};
  began_ns_ = options_.loop->clock().NowNanos();
  if (stages() == 1) {
    options_.on_replicated(under_way_);
    return absl::OkStatus();
  }
  sender_.Begin({id.sequence, options_.store->committed()}, std::move(copy));
  under_way_.bytes = sender_.bytes();
  Pump();
  return absl::OkStatus();
}

void StageReplication::Pump() {
  if (!sender_.busy() || link_ == nullptr) return;
  const int64_t now_ns = options_.loop->clock().NowNanos();
  LinkSession& session = link_->session();
  if (sender_.Acknowledge(session.unacknowledged(FrameKind::kReplica), now_ns)) {
    under_way_.took_ns = now_ns - began_ns_;
    return options_.on_replicated(under_way_);
  }
  while (link_->queued_bytes() <= kMostQueuedBytes) {
    std::optional<Frame> frame = sender_.Next(now_ns);
    if (!frame.has_value()) return;
    session.Send(*std::move(frame));
  }
  // The queue may hold acknowledgements, which get no answer.
  if (std::exchange(waits_, true)) return;
  options_.loop->PostAfter(kLookAgainNs, [this, alive = alive_] {
    if (!*alive) return;
    waits_ = false;
    Pump();
  });
}

absl::StatusOr<ReplicaReader> StageReplication::ReaderFor(ReplicaSource from) const {
  const StagePlan& range = RangeOf(from);
  RUNNEL_ASSIGN_OR_RETURN(const int64_t max_encoder_bytes,
                          MaxEncoderBytes(options_.model, range, options_.batch_size));
  return ReplicaReader::Create(options_.model, range.first_layer, range.last_layer, options_.format,
                               max_encoder_bytes);
}

absl::Status StageReplication::Arrived(ReplicaSource from, const Frame& frame) {
  if (!ReceivesFrom(from)) return absl::InvalidArgumentError("replica: of no neighbour's");
  RUNNEL_ASSIGN_OR_RETURN(const PieceHead head, ReadPieceHead(frame));
  auto at = incoming_.find(from);
  if (at == incoming_.end()) {
    RUNNEL_ASSIGN_OR_RETURN(ReplicaReader reader, ReaderFor(from));
    at = incoming_.emplace(from, Incoming{head, std::move(reader)}).first;
  }
  if (at->second.head != head) {
    return absl::InvalidArgumentError(absl::StrCat("replica: a piece of barrier ",
                                                   head.barrier.value(), " within one of ",
                                                   at->second.head.barrier.value()));
  }
  RUNNEL_RETURN_IF_ERROR(at->second.reader.Add(frame.payload.bytes().subspan(kReplicaHeadBytes)));
  if (!at->second.reader.whole()) return absl::OkStatus();
  Incoming whole = std::move(at->second);
  incoming_.erase(at);
  return Keep(from, std::move(whole));
}

absl::Status StageReplication::Keep(ReplicaSource from, Incoming incoming) {
  const StagePlan& range = RangeOf(from);
  ModelState state = incoming.reader.Take();
  RUNNEL_RETURN_IF_ERROR(
      CheckState(state, options_.model, range.first_layer, range.last_layer, options_.format));
  options_.store->Commit(incoming.head.committed);
  options_.store->Add({options_.plan.generation, incoming.head.barrier}, from,
                      std::make_shared<const ModelState>(std::move(state)));
  return absl::OkStatus();
}

}  // namespace runnel
