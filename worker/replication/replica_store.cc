#include "worker/replication/replica_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// The layer whose stage has this encoder: of activations the one before the boundary, of gradients
// the one behind it.
int LayerOf(const EncoderState& encoder) {
  return encoder.direction == Direction::kForward ? encoder.boundary : encoder.boundary + 1;
}

}  // namespace

void ReplicaStore::Add(const ReplicaId& id, ReplicaSource source,
                       std::shared_ptr<const ModelState> state) {
  std::erase_if(replicas_, [&](const auto& replica) {
    return replica.first.source == source && replica.first.id != committed_;
  });
  replicas_[{id, source}] = std::move(state);
}

void ReplicaStore::Commit(const ReplicaId& id) {
  if (id <= committed_) return;
  committed_ = id;
  std::erase_if(replicas_, [&](const auto& replica) { return replica.first.id < id; });
}

void ReplicaStore::DropUncommitted() {
  std::erase_if(replicas_, [&](const auto& replica) { return replica.first.id != committed_; });
}

absl::StatusOr<ModelState> ReplicaStore::LayersOf(const ReplicaId& id,
                                                  const LayerRange& layers) const {
  const auto is_wanted = [&layers](int layer) {
    return layers.first_layer <= layer && layer <= layers.last_layer;
  };
  ModelState found;
  for (const auto& [key, state] : replicas_) {
    if (key.id != id) continue;
    ModelState part;
    for (const LayerState& layer : state->layers) {
      if (is_wanted(layer.layer)) part.layers.push_back(layer);
    }
    if (key.source != ReplicaSource::kOwn) RUNNEL_RETURN_IF_ERROR(CheckFinite("replica", part));
    std::move(part.layers.begin(), part.layers.end(), std::back_inserter(found.layers));
    for (const EncoderState& encoder : state->encoders) {
      if (is_wanted(LayerOf(encoder))) found.encoders.push_back(encoder);
    }
  }
  // Stages have no layer in common.
  std::sort(found.layers.begin(), found.layers.end(),
            [](const LayerState& a, const LayerState& b) { return a.layer < b.layer; });
  return found;
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

}  // namespace runnel
