#include <algorithm>
#include <vector>

#include "partition/policies/policies.h"
#include "proto/base/status_macros.h"

namespace runnel::policies {

absl::StatusOr<Partition> MinimiseSlowest(const PartitionRequest& request, LinkCharge charge) {
  RUNNEL_RETURN_IF_ERROR(CheckHasCosts(request));
  const int layers = request.layers;
  const int devices = request.devices;
  CheckedCosts costs(request);
  // best[n][l]: A(l + 1, n + 1) of the paper, the slowest resource of layers 0..l on devices 0..n.
  // cut[n][l]: the p that gives it, as the last layer of device n - 1.
  std::vector<std::vector<double>> best(devices, std::vector<double>(layers, 0));
  std::vector<std::vector<int>> cut(devices, std::vector<int>(layers, 0));
  for (int l = 0; l <= layers - devices; ++l) best[0][l] = costs.StageSeconds(0, 0, l);
  for (int n = 1; n < devices; ++n) {
    // p leaves a layer for each device before, l one for each device after.
    const int last = layers - devices + n;
    std::vector<double> arrives(layers, 0);
    for (int p = n - 1; p < last; ++p) {
      arrives[p] = std::max(best[n - 1][p], costs.LinkSeconds(p, n - 1, charge));
    }
    for (int l = n; l <= last; ++l) {
      for (int p = n - 1; p < l; ++p) {
        const double slowest = std::max(arrives[p], costs.StageSeconds(n, p + 1, l));
        if (p == n - 1 || slowest < best[n][l]) {
          best[n][l] = slowest;
          cut[n][l] = p;
        }
      }
    }
  }
  RUNNEL_RETURN_IF_ERROR(costs.status());
  Partition partition;
  partition.bottleneck_seconds = best[devices - 1][layers - 1];
  partition.placement.last_layer.resize(devices);
  for (int n = devices - 1, l = layers - 1; n >= 0; l = cut[n][l], --n) {
    partition.placement.last_layer[n] = l;
  }
  return partition;
}

absl::StatusOr<Partition> DynamicProgramming(const PartitionRequest& request) {
  return MinimiseSlowest(request, LinkCharge::kDownPlusUp);
}

}  // namespace runnel::policies
