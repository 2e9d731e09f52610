#include <cmath>

#include "absl/strings/str_cat.h"
#include "partition/policies/policies.h"
#include "proto/base/status_macros.h"

namespace runnel::policies {

absl::Status CheckIsSome(const PartitionRequest& request) {
  if (request.layers < 1 || request.devices < 1) {
    return absl::InvalidArgumentError(absl::StrCat("partition: ", request.layers, " layers on ",
                                                   request.devices,
                                                   " devices; needs at least one of each"));
  }
  return absl::OkStatus();
}

absl::Status CheckCounts(const PartitionRequest& request) {
  if (absl::Status status = CheckIsSome(request); !status.ok()) return status;
  if (request.devices > request.layers) {
    return absl::InvalidArgumentError(absl::StrCat(
        request.layers, " layers cannot make ", request.devices, " stages; use at most ",
        request.layers, " devices, a model with more layers, or the policy runnel"));
  }
  return absl::OkStatus();
}

absl::Status CheckHasCosts(const PartitionRequest& request) {
  RUNNEL_RETURN_IF_ERROR(CheckCounts(request));
  if (request.compute == nullptr || request.link_seconds == nullptr) {
    return absl::InvalidArgumentError(
        "partition: this policy needs measured layer times and link times; profile the devices "
        "first or use the policy uniform");
  }
  return absl::OkStatus();
}

double CheckedCosts::Check(double seconds, const char* what, int device, int layer) {
  if (status_.ok() && !(std::isfinite(seconds) && seconds >= 0)) {
    status_ = absl::InvalidArgumentError(absl::StrCat("partition: ", what, " of device ", device,
                                                      " at layer ", layer, " is ", seconds,
                                                      ", no number of seconds"));
  }
  return seconds;
}

double CheckedCosts::StageSeconds(int device, int first_layer, int last_layer) {
  return Check(request_.compute->StageSeconds(device, first_layer, last_layer),
               "the computing time", device, first_layer);
}

double CheckedCosts::LinkSeconds(int layer, int from, LinkCharge charge) {
  const double down =
      Check(request_.link_seconds(layer, from, Direction::kForward), "the link time", from, layer);
  const bool is_frozen = request_.pipeline != nullptr && layer < request_.pipeline->frozen_front;
  if (charge == LinkCharge::kTwiceDown) return is_frozen ? down : 2 * down;
  return down + Check(request_.link_seconds(layer, from, Direction::kBackward), "the link time",
                      from, layer);
}

}  // namespace runnel::policies
