#pragma once

// A worker's copies of barriers: of its own stage's state and of others'. It outlives the
// stage. For each stage it keeps the last committed barrier's copy and a later uncommitted one.
// One thread.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/model/model_state.h"
#include "proto/base/plan/layer_range.h"
#include "proto/transport/control/control.h"
#include "worker/replication/summed_state.h"

namespace runnel {

// Copies of one barrier, as a worker's store had them when it was asked. They stay as they are; any
// thread may read them, so that checking and copying large states does not hold a loop up.
class ReplicaCopies {
 public:
  // Copies of layers first..last, with the encoders of their outputs. DataLoss: another stage's copy
  // has a value that is no finite number, or bytes are not those that the stage has summed.
  absl::StatusOr<ModelState> LayersOf(const LayerRange& layers) const;
  // All of these ranges and of `given`, layers from elsewhere, which stand in the place of copies.
  // Errors as LayersOf; NotFound: a layer of the ranges is neither here nor there.
  absl::StatusOr<ModelState> AllLayersOf(const std::vector<LayerRange>& ranges,
                                         const ModelState& given = {}) const;

 private:
  friend class ReplicaStore;
  struct Replica {
    std::shared_ptr<const SummedState> copy;
    bool is_own = false;
  };

  ReplicaId id_;
  std::vector<Replica> replicas_;  // by stage
};

class ReplicaStore {
 public:
  // The state of this stage of the id's plan; is_own: this worker's.
  void Add(const ReplicaId& id, int stage, bool is_own, std::shared_ptr<const SummedState> copy);
  // Older ones are dropped. A commit that is older than the last one has come late and changes
  // nothing.
  void Commit(const ReplicaId& id);
  // Generation 0: none is committed yet.
  const ReplicaId& committed() const { return committed_; }
  // Stages that were copying are no more: what was not committed never will be.
  void DropUncommitted();

  // The copies of this barrier, which may be none.
  ReplicaCopies CopiesAt(const ReplicaId& id) const;
  // The copy of this stage's state; nullptr: it is not here.
  std::shared_ptr<const SummedState> CopyOf(const ReplicaId& id, int stage) const;

 private:
  struct Key {
    ReplicaId id;
    int stage;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  std::map<Key, ReplicaCopies::Replica> replicas_;
  ReplicaId committed_;
};

}  // namespace runnel
