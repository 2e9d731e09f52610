#include "partition/policies/policies.h"

namespace runnel::policies {

absl::StatusOr<Partition> Accept(const PartitionRequest& request) {
  return MinimiseSlowest(request, LinkCharge::kTwiceDown);
}

}  // namespace runnel::policies
