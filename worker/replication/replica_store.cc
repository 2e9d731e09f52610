#include "worker/replication/replica_store.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

absl::Status Damaged(const ReplicaId& id, const std::string& what) {
  return absl::DataLossError(absl::StrCat("the copy of ", what, " at micro-batch ",
                                          id.sequence.value(), " of plan ", id.generation.value(),
                                          " has changed since it was made"));
}

absl::Status CheckHasLayers(const ReplicaId& id, const LayerRange& layers,
                            const ModelState& found) {
  for (int layer = layers.first_layer; layer <= layers.last_layer; ++layer) {
    const auto is_it = [layer](const LayerState& state) { return state.layer == layer; };
    if (std::any_of(found.layers.begin(), found.layers.end(), is_it)) continue;
    return absl::NotFoundError(absl::StrCat("has no copy of layer ", layer, " at micro-batch ",
                                            id.sequence.value(), " of plan ",
                                            id.generation.value()));
  }
  return absl::OkStatus();
}

}  // namespace

void ReplicaStore::Add(const ReplicaId& id, int stage, bool is_own,
                       std::shared_ptr<const SummedState> copy) {
  // Of a plan that holds no more nothing else will be committed.
  std::erase_if(replicas_, [&](const auto& replica) {
    const Key& key = replica.first;
    return (key.stage == stage || key.id.generation < id.generation) && key.id != committed_;
  });
  replicas_[{id, stage}] = {std::move(copy), is_own};
}

void ReplicaStore::Commit(const ReplicaId& id) {
  if (id <= committed_) return;
  committed_ = id;
  std::erase_if(replicas_, [&](const auto& replica) { return replica.first.id < id; });
}

void ReplicaStore::DropUncommitted() {
  std::erase_if(replicas_, [&](const auto& replica) { return replica.first.id != committed_; });
}

ReplicaCopies ReplicaStore::CopiesAt(const ReplicaId& id) const {
  ReplicaCopies copies;
  copies.id_ = id;
  for (const auto& [key, replica] : replicas_) {
    if (key.id == id) copies.replicas_.push_back(replica);
  }
  return copies;
}

std::shared_ptr<const SummedState> ReplicaStore::CopyOf(const ReplicaId& id, int stage) const {
  const auto found = replicas_.find({id, stage});
  return found == replicas_.end() ? nullptr : found->second.copy;
}

absl::StatusOr<ModelState> ReplicaCopies::LayersOf(const LayerRange& layers) const {
  const auto is_wanted = [&layers](int layer) {
    return layers.first_layer <= layer && layer <= layers.last_layer;
  };
  ModelState found;
  for (const Replica& replica : replicas_) {
    const auto& [state, sums] = *replica.copy;
    ModelState part;
    for (size_t i = 0; i < state.layers.size(); ++i) {
      const LayerState& layer = state.layers[i];
      if (!is_wanted(layer.layer)) continue;
      // What central goes on from has to be what was trained.
      if (SumOf(layer) != sums.layers[i]) return Damaged(id_, absl::StrCat("layer ", layer.layer));
      part.layers.push_back(layer);
    }
    if (const absl::Status finite = CheckFinite("replica", part); !replica.is_own && !finite.ok())
      return absl::DataLossError(finite.message());
    std::move(part.layers.begin(), part.layers.end(), std::back_inserter(found.layers));
    if (SumOf(state.encoders) != sums.encoders) return Damaged(id_, "encoders");
    for (const EncoderState& encoder : state.encoders) {
      // Gradients are encoded behind the boundary; what is kept of activations, on both sides of it.
      const bool is_before =
          encoder.direction == Direction::kForward && is_wanted(encoder.boundary);
      if (is_before || is_wanted(encoder.boundary + 1)) found.encoders.push_back(encoder);
    }
  }
  // Stages have no layer in common.
  std::sort(found.layers.begin(), found.layers.end(),
            [](const LayerState& a, const LayerState& b) { return a.layer < b.layer; });
  return found;
}

absl::StatusOr<ModelState> ReplicaCopies::AllLayersOf(const std::vector<LayerRange>& ranges,
                                                      const ModelState& given) const {
  ModelState found;
  for (const LayerRange& range : ranges) {
    RUNNEL_ASSIGN_OR_RETURN(const ModelState part, LayersOf(range));
    Merge(part, found);
  }
  Merge(given, found);
  for (const LayerRange& range : ranges) RUNNEL_RETURN_IF_ERROR(CheckHasLayers(id_, range, found));
  return found;
}

}  // namespace runnel
