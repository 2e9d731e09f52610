#pragma once

// A stage's part in replication: keeps a copy of its own state, sends it to the next stage (the
// last stage to the one before it), and keeps what neighbours send. All methods on the loop's
// thread.
//
// The last stage has no next one. The stage before it has a link to it already, so nobody need be
// dialled; and two workers lost together take a state with them only if they are neighbours.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "proto/transport/control/control.h"
#include "proto/transport/link/link_shell.h"
#include "worker/replication/replica_sender.h"
#include "worker/replication/replica_store.h"
#include "worker/replication/replica_stream.h"

namespace runnel {

struct StageReplicationOptions {
  Plan plan;
  int stage = 0;
  ModelSpec model;
  int64_t batch_size = 1;
  NumberFormat format;
  // These outlive it.
  EventLoop* loop = nullptr;
  BufferPool* pool = nullptr;
  ReplicaStore* store = nullptr;
  // Own and neighbour have the copy.
  std::function<void(const Replicated&)> on_replicated;
};

class StageReplication {
 public:
  explicit StageReplication(StageReplicationOptions options);
  ~StageReplication() { *alive_ = false; }
  StageReplication(const StageReplication&) = delete;
  StageReplication& operator=(const StageReplication&) = delete;

  // The stage that the copy goes to is behind this link; it outlives this.
  void SetLink(LinkShell* link) { link_ = link; }
  // Whether copies go to the next stage, or to the one before; neither where the stage is alone.
  bool sends_down() const { return stage_ + 1 < stages(); }
  bool sends_up() const { return stages() > 1 && !sends_down(); }
  // Whether this side's neighbour sends its copies here.
  bool ReceivesFrom(ReplicaSource source) const;

  // `state` is the stage's at this barrier; copying took stall_ns. FailedPrecondition: the one
  // before is still on its way.
  absl::Status Begin(const ReplicaId& id, ModelState state, int64_t stall_ns);
  // A piece of a neighbour's. InvalidArgument: it cannot be.
  absl::Status Arrived(ReplicaSource from, const Frame& frame);
  // There may be room on the link.
  void Pump();

 private:
  struct Incoming {
    PieceHead head;
    ReplicaReader reader;
  };
  int stages() const { return static_cast<int>(options_.plan.stages.size()); }
  absl::StatusOr<ReplicaReader> ReaderFor(ReplicaSource from) const;
  absl::Status Keep(ReplicaSource from, Incoming incoming);
  const StagePlan& RangeOf(ReplicaSource from) const;

  StageReplicationOptions options_;
  int stage_;
  LinkShell* link_ = nullptr;
  ReplicaSender sender_;
  Replicated under_way_;
  int64_t began_ns_ = 0;
  bool waits_ = false;  // a timer will pump
  std::map<ReplicaSource, Incoming> incoming_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace runnel
