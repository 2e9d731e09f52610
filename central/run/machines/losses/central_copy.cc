#include "central/run/machines/losses/central_copy.h"

#include <algorithm>
#include <numeric>

namespace runnel {

// Seconds of bringing all states to central's host, where all paths end, so that their times add
// up. For an unmeasured path the links of the device's stage stand in.
double CentralCopy::CollectSeconds(const ActivePlan& active,
                                   const std::vector<DeviceFacts>& devices) const {
  double seconds = 0;
  for (const StageStatus& stage : active.stages) {
    const DeviceFacts& device = OfSoleDevice(stage.plan, devices);
    if (device.is_local || layer_bytes_.empty()) continue;
    const double bytes = static_cast<double>(
        std::accumulate(layer_bytes_.begin() + stage.plan.first_layer,
                        layer_bytes_.begin() + stage.plan.last_layer + 1, int64_t{0}));
    LinkRate rate = device.path.up.rate;
    if (!rate.is_set()) {
      rate = SlowerOf(LinkRate::BytesPerSecond(stage.telemetry.upstream_bytes_per_second),
                      LinkRate::BytesPerSecond(stage.telemetry.downstream_bytes_per_second));
    }
    seconds += rate.Seconds(bytes);
  }
  return seconds;
}

bool CentralCopy::WantsState(const ActivePlan& active, const std::vector<DeviceFacts>& devices,
                             int64_t now_ns) {
  if (!kept_ns_.has_value()) kept_ns_ = now_ns;
  const auto expected_ns = static_cast<int64_t>(CollectSeconds(active, devices) * 1e9);
  return now_ns - *kept_ns_ >= time_share_ * std::max(took_ns_, expected_ns);
}

void CentralCopy::Keep(int64_t step, ModelState state, int64_t now_ns) {
  kept_ns_ = now_ns;
  took_ns_ = std::max<int64_t>(now_ns - began_ns_, 0);
  step_ = step;
  reached_ns_ = began_ns_;
  state_ = std::move(state);
}

}  // namespace runnel
