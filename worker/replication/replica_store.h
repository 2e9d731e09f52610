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

namespace runnel {

class ReplicaStore {
 public:
  // The state of this stage of the id's plan; is_own: this worker's.
  void Add(const ReplicaId& id, int stage, bool is_own, std::shared_ptr<const ModelState> state);
  // Older ones are dropped. A commit that is older than the last one has come late and changes
  // nothing.
  void Commit(const ReplicaId& id);
  // Generation 0: none is committed yet.
  const ReplicaId& committed() const { return committed_; }
  // Stages that were copying are no more: what was not committed never will be.
  void DropUncommitted();

  // Copies of layers first..last of this barrier, with the encoders of their outputs.
  // InvalidArgument: another stage's copy has a value that is no finite number. DataLoss: the memory
  // has changed since the copy was made.
  absl::StatusOr<ModelState> LayersOf(const ReplicaId& id, const LayerRange& layers) const;

 private:
  struct Key {
    ReplicaId id;
    int stage;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  // With checksums of what came: by layer, and of all encoders.
  struct Replica {
    std::shared_ptr<const ModelState> state;
    bool is_own = false;
    std::vector<uint32_t> layer_sums = {};
    uint32_t encoder_sum = 0;
  };
  std::map<Key, Replica> replicas_;
  ReplicaId committed_;
};

// NotFound: `found`, what a worker has of this barrier, lacks one of these layers.
absl::Status CheckHasLayers(const ReplicaId& id, const LayerRange& layers, const ModelState& found);

}  // namespace runnel
