#include "partition/policies/policies.h"
#include "proto/base/status_macros.h"

namespace runnel::policies {

absl::StatusOr<Partition> Uniform(const PartitionRequest& request) {
  RUNNEL_RETURN_IF_ERROR(CheckCounts(request));
  const int each = request.layers / request.devices;
  const int larger = request.layers % request.devices;
  Partition partition;
  int end = 0;
  for (int device = 0; device < request.devices; ++device) {
    end += each + (device < larger ? 1 : 0);
    partition.placement.last_layer.push_back(end - 1);
  }
  return partition;
}

}  // namespace runnel::policies
