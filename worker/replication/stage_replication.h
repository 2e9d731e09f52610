#pragma once

// A stage's part in replication: keeps a copy of its own state, sends it to the stages that are to
// hold it, keeps what comes, and passes on what is for others too. All methods on the loop's thread.
//
// Copies go along the chain: its links are there, so nobody need be dialled. A stage that passes a
// copy on has all of it first. What encoders keep of samples goes as changes to the last committed
// barrier, where the neighbour has its copy.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

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
  // The neighbours have the own copy, or this stage has that of one further away.
  std::function<void(const Replicated&)> on_replicated;
  int64_t dataset_samples = 0;  // of which ends of links may keep something
};

class StageReplication {
 public:
  enum Side : size_t { kUpstream, kDownstream };

  explicit StageReplication(StageReplicationOptions options);
  ~StageReplication() { *alive_ = false; }
  StageReplication(const StageReplication&) = delete;
  StageReplication& operator=(const StageReplication&) = delete;

  // The neighbour on this side is behind this link; it outlives this.
  void SetLink(Side side, LinkShell* link) { lines_[side].link = link; }

  // `copy` is of the stage's state at this barrier; the stage stood for stall_ns meanwhile.
  // FailedPrecondition: the one before is still on its way. InvalidArgument: there is no such
  // holder.
  absl::Status Begin(const Replicate& request, std::shared_ptr<const SummedState> copy,
                     int64_t stall_ns);
  // A piece from the neighbour on this side. InvalidArgument: it cannot be.
  absl::Status Arrived(Side from, const Frame& frame);
  // There may be room on the link of this side.
  void Pump(Side side);

 private:
  struct Copy {
    PieceHead head;
    std::shared_ptr<const SummedState> state;
    std::shared_ptr<const SummedState> base = nullptr;  // what the neighbour has; null: nothing
  };
  struct Incoming {
    PieceHead head;
    ReplicaReader reader;
  };
  // What goes to the neighbour on one side, and comes from there.
  struct Line {
    LinkShell* link = nullptr;
    ReplicaSender sender;
    std::deque<Copy> waiting = {};
    std::optional<Incoming> incoming = {};
    std::map<int, Sequence> arrived = {};  // by source: the barrier of the neighbour's last copy
    bool looks_again = false;              // a timer will pump
  };

  int stages() const { return static_cast<int>(options_.plan.stages.size()); }
  Side SideOf(int stage) const { return stage < stage_ ? kUpstream : kDownstream; }
  absl::StatusOr<PieceHead> HeadOf(Side from, const Frame& frame) const;
  absl::StatusOr<ReplicaReader> ReaderFor(const PieceHead& head) const;
  // The copy of the barrier that head.committed names, if it is one of this plan.
  std::shared_ptr<const SummedState> BaseOf(const PieceHead& head) const;
  absl::Status Keep(Incoming incoming);
  void Send(Copy copy);
  // The neighbour has all of the copy with this head.
  void Sent(const PieceHead& head, int64_t bytes);

  StageReplicationOptions options_;
  int stage_;
  std::array<Line, 2> lines_;
  Replicated under_way_;
  int own_left_ = 0;  // own copies that are on their way
  int64_t began_ns_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace runnel
