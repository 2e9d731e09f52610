#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "partition/policies/policies.h"
#include "proto/base/status_macros.h"

namespace runnel::policies {
namespace {

constexpr int kMaxCuts = 16;

// Central's layer times, scaled by every worker's capacity.
class RatioEstimate final : public CostModel {
 public:
  // Measures at `cut`. A range that takes central no time says nothing: ratio 1.
  RatioEstimate(const CostModel& measured, const std::vector<int>& cut) : measured_(measured) {
    int first = 0;
    for (int device = 0; device < static_cast<int>(cut.size()); ++device) {
      const int last = cut[device];
      const double central = measured.StageSeconds(0, first, last);
      ratios_.push_back(central > 0 ? measured.StageSeconds(device, first, last) / central : 1);
      first = last + 1;
    }
  }
  double StageSeconds(int device, int first_layer, int last_layer) const override {
    return measured_.StageSeconds(0, first_layer, last_layer) * ratios_[device];
  }

 private:
  const CostModel& measured_;
  std::vector<double> ratios_;
};

}  // namespace

absl::StatusOr<Partition> NextOfFtpipehd(const PartitionRequest& request,
                                         const std::vector<int>& held) {
  RUNNEL_RETURN_IF_ERROR(CheckHasCosts(request));
  const bool is_cut =
      static_cast<int>(held.size()) == request.devices &&
      std::adjacent_find(held.begin(), held.end(), std::greater_equal<>()) == held.end() &&
      held.front() >= 0 && held.back() == request.layers - 1;
  if (!is_cut) {
    return absl::InvalidArgumentError(absl::StrCat("ftpipehd: the plan that holds does not cut ",
                                                   request.layers, " layers over ", request.devices,
                                                   " devices"));
  }
  const RatioEstimate estimate(*request.compute, held);
  PartitionRequest estimated = request;
  estimated.compute = &estimate;
  return MinimiseSlowest(estimated, LinkCharge::kTwiceDown);
}

absl::StatusOr<Partition> FtpipehdPlus(const PartitionRequest& request) {
  RUNNEL_RETURN_IF_ERROR(CheckHasCosts(request));
  RUNNEL_ASSIGN_OR_RETURN(Partition running, Uniform(request));
  std::vector<std::vector<int>> seen;
  for (int i = 0; i < kMaxCuts; ++i) {
    seen.push_back(running.placement.last_layer);
    RUNNEL_ASSIGN_OR_RETURN(running, NextOfFtpipehd(request, seen.back()));
    if (std::find(seen.begin(), seen.end(), running.placement.last_layer) != seen.end()) break;
  }
  return running;
}

}  // namespace runnel::policies
