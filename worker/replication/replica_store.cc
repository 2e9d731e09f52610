#include "worker/replication/replica_store.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "proto/base/status_macros.h"
#include "proto/transport/link/frame.h"

namespace runnel {
namespace {

// The layer whose stage has this encoder: of activations the one before the boundary, of gradients
// the one behind it.
int LayerOf(const EncoderState& encoder) {
  return encoder.direction == Direction::kForward ? encoder.boundary : encoder.boundary + 1;
}

uint32_t SumOf(uint32_t sum, const std::string& bytes) {
  return Crc32(sum,
               absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
}

uint32_t SumOf(const LayerState& layer) {
  uint32_t sum = 0;
  for (const TensorData& tensor : layer.tensors) sum = SumOf(sum, tensor.bytes);
  for (const TensorData& slot : layer.slots) sum = SumOf(sum, slot.bytes);
  return sum;
}

uint32_t SumOf(const std::vector<EncoderState>& encoders) {
  uint32_t sum = 0;
  for (const EncoderState& encoder : encoders) sum = SumOf(sum, encoder.state);
  return sum;
}

absl::Status Damaged(const ReplicaId& id, const std::string& what) {
  return absl::DataLossError(absl::StrCat("the copy of ", what, " at micro-batch ",
                                          id.sequence.value(), " of plan ", id.generation.value(),
                                          " has changed in memory"));
}

}  // namespace

void ReplicaStore::Add(const ReplicaId& id, int stage, bool is_own,
                       std::shared_ptr<const ModelState> state) {
  // Of a plan that holds no more nothing else will be committed.
  std::erase_if(replicas_, [&](const auto& replica) {
    const Key& key = replica.first;
    return (key.stage == stage || key.id.generation < id.generation) && key.id != committed_;
  });
  Replica replica{std::move(state), is_own};
  for (const LayerState& layer : replica.state->layers) replica.layer_sums.push_back(SumOf(layer));
  replica.encoder_sum = SumOf(replica.state->encoders);
  replicas_[{id, stage}] = std::move(replica);
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
  for (const auto& [key, replica] : replicas_) {
    if (key.id != id) continue;
    ModelState part;
    for (size_t i = 0; i < replica.layer_sums.size(); ++i) {
      const LayerState& layer = replica.state->layers[i];
      if (!is_wanted(layer.layer)) continue;
      // What central goes on from has to be what was trained.
      if (SumOf(layer) != replica.layer_sums[i])
        return Damaged(id, absl::StrCat("layer ", layer.layer));
      part.layers.push_back(layer);
    }
    if (!replica.is_own) RUNNEL_RETURN_IF_ERROR(CheckFinite("replica", part));
    std::move(part.layers.begin(), part.layers.end(), std::back_inserter(found.layers));
    if (SumOf(replica.state->encoders) != replica.encoder_sum) return Damaged(id, "encoders");
    for (const EncoderState& encoder : replica.state->encoders) {
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
