#include "predictor/run/frozen_share.h"

#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<FrozenShare> FrozenShare::Create(const ModelSpec& model) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  FrozenShare share;
  bool any = false;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    const bool frozen = model.layers[layer].frozen;
    any = any || frozen;
    // Behind layers that train the input-gradient is still made.
    const double passes = !frozen ? 3 : layer < model.frozen_front() ? 1 : 2;
    share.macs_.push_back(static_cast<double>(infos[layer].macs) + 1);
    share.share_.push_back(passes / 3);
  }
  return any ? share : FrozenShare();
}

double FrozenShare::Of(const LayerRange& range) const {
  if (macs_.empty()) return 1;
  double all = 0, taken = 0;
  for (int layer = range.first_layer; layer <= range.last_layer; ++layer) {
    all += macs_[layer];
    taken += macs_[layer] * share_[layer];
  }
  return taken / all;
}

}  // namespace runnel
