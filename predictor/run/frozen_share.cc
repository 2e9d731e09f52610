#include "predictor/run/frozen_share.h"

#include <algorithm>

#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<FrozenShare> FrozenShare::Create(const ModelSpec& model) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  FrozenShare share;
  bool any = false;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    double weights = 0, frozen = 0;
    for (const StateTensorSpec& spec : infos[layer].state) {
      const auto elements = static_cast<double>(spec.shape.elements());
      weights += elements;
      if (spec.frozen) frozen += elements;
    }
    const bool recompute = model.layers[layer].recompute;
    any = any || frozen > 0 || recompute;
    // Behind layers that train the input-gradient is still made.
    const double passes = layer < model.frozen_front()
                              ? 1
                              : 3 - frozen / std::max(weights, 1.0) + (recompute ? 1 : 0);
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
